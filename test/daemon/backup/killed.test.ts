import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import { beforeAll, describe, expect, it } from 'vitest'
import { markName } from '../../../src/storage/backup/restore-mark.ts'
import type { Dialect } from '../../../src/storage/db.ts'
import { hasTable } from '../../../src/storage/migration-ledger.ts'
import type { Storage } from '../../../src/storage/open.ts'
import { depth, takesTurn } from '../../depth.ts'
import { failedStart, until } from '../process.ts'
import { SvcProcess, svc } from './binary.ts'
import { backupOf, emptyPlace, kinds, type Place, withStorage } from './filled.ts'
import { placeWithRows } from './many-rows.ts'

const patience = 240_000

let file: string
let rows: number
beforeAll(async () => {
  const place = await placeWithRows('sqlite', depth(10_000, 30_000))
  const backup = await backupOf(place)
  file = backup.file
  rows = backup.rows
}, patience)

const has = (storage: Storage, table: string): Promise<boolean> =>
  sql`select * from ${sql.table(table)} limit 1`.execute(storage.read).then(
    ({ rows: found }) => found.length > 0,
    () => false,
  )

/** How far a restore has come when it is killed. */
const points: [name: string, isReached: (storage: Storage) => Promise<boolean>][] = [
  ['its migrations', (storage) => has(storage, 'svc_migrations')],
  ['its rows', (storage) => has(storage, 'agent_logs')],
  ['its last rows', (storage) => has(storage, 'trust_policies')],
]

describe.each(kinds)('a restore to %s that was killed', (kind) => {
  const tried = points.filter((_, index) => takesTurn(kind, index))
  it.each(tried)('at %s', { timeout: patience }, async (_, isReached) => {
    const place = await killedRestore(kind, isReached)

    const unfinished = /A restore into this database did not finish: repeat svc db restore/
    expect((await failedStart(place)).stderr).toMatch(unfinished)
    for (const command of ['migrate', 'status']) {
      const { code, stderr } = await svc(['db', command], place)
      expect([command, code, stderr]).toEqual([command, 1, expect.stringMatching(unfinished)])
    }
    await expect(backupOf(place)).rejects.toThrow(unfinished)

    const again = await svc(['db', 'restore', file, '--json'], place)
    expect(again).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(again.stdout)).toMatchObject({ rows })
    expect((await svc(['db', 'status'], place)).code).toBe(0)
  })
})

/** A restore may come to its end between the look and the kill: then another one is tried. */
async function killedRestore(
  kind: Dialect,
  isReached: (storage: Storage) => Promise<boolean>,
): Promise<Place> {
  for (let attempt = 0; attempt < 10; attempt++) {
    const place = await emptyPlace(kind)
    const restore = new SvcProcess(['db', 'restore', file], place)
    await until(() => (restore.running ? looked(place, isReached) : true), 60_000)
    restore.kill()
    const { signal, code, stderr } = await restore.ended
    if (signal !== 'SIGKILL') expect([code, stderr]).toEqual([0, expect.anything()])
    else if (await looked(place, (storage) => hasTable(storage, markName))) return place
  }
  throw new Error('every restore ended before it was killed')
}

async function looked(place: Place, isReached: (storage: Storage) => Promise<boolean>): Promise<boolean> {
  // Looking would make the file.
  if (place.databaseUrl === undefined && !existsSync(join(place.dataDir, 'svc.sqlite'))) return false
  try {
    return await withStorage(place, isReached)
  } catch {
    return false
  }
}
