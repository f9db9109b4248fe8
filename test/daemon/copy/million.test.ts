import { randomBytes } from 'node:crypto'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { tableDigest } from '../../../daemon/backup/archive-lines.ts'
import { isMoved } from '../../../daemon/backup/contents.ts'
import { tablesOf } from '../../../src/storage/backup/catalog.ts'
import type { Dialect } from '../../../src/storage/db.ts'
import { isSoak } from '../../depth.ts'
import { OwnPostgres } from '../../own-postgres.ts'
import { backupOf, filledPlace, kinds, type Place, restored, withStorage } from '../backup/filled.ts'
import { addLogs } from '../backup/many-rows.ts'
import { copiedDespite, copyTo, isWritable, reopened } from './killing.ts'

const rows = 1_000_000
const kills = 20
/** A hundred times the rows take no more memory: the same as for some thousand. */
const maxKiB = 400 * 1024

/** Places on a disk: two gigabytes are too much for the memory that other tests have their databases in. */
async function onDisk() {
  const folder = await mkdtemp(join(tmpdir(), 'svc-million-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  // The user of Postgres has to enter it.
  await chmod(folder, 0o755)
  const settings = { max_wal_size: '1GB', shared_buffers: '128MB' }
  const server = await OwnPostgres.begin({ folder, settings })
  return async (kind: Dialect): Promise<Place> => {
    const dataDir = await mkdtemp(join(folder, 'svc-'))
    if (kind === 'sqlite') return { dataDir }
    const name = `copy_${randomBytes(6).toString('hex')}`
    await server.ask((client) => client.query(`create database ${name} template template0`))
    const url = new URL(server.databaseUrl)
    url.pathname = `/${name}`
    return { dataDir, databaseUrl: url.href }
  }
}

/** Of each table as a backup has it: the rows themselves do not fit into the memory of a test. */
const digestsOf = (place: Place) =>
  withStorage(place, async (storage) => {
    const digests: Record<string, unknown> = {}
    for (const table of await tablesOf(storage))
      if (isMoved(table.name)) digests[table.name] = await tableDigest(storage.read, table)
    return digests
  })

describe.skipIf(!isSoak).each(kinds)(`a copy of %s with ${rows} rows`, (kind) => {
  it(`is complete after ${kills} kills, in the memory that few rows take`, {
    timeout: 7_200_000,
  }, async () => {
    const { world, ...filled } = await filledPlace('sqlite')
    const place = await onDisk()
    const from = await place(kind)
    await restored(from, (await backupOf(filled)).file)
    await withStorage(from, (storage) => addLogs(storage, world.orgs.bakery, rows))
    const empty = () => place(kind === 'sqlite' ? 'postgres' : 'sqlite')
    await copiedDespite({ from, empty, kills, longest: 30_000, contentOf: digestsOf })
    await reopened(from)
    const { code, stdout, maxRss } = await copyTo(from, await empty()).ended
    expect(code).toBe(0)
    const { seconds, rows: copied } = JSON.parse(stdout)
    expect(copied).toBeGreaterThan(rows)
    expect(maxRss).toBeLessThan(maxKiB)
    expect(await isWritable(from)).toBe(false)
    // For docs/operations/sizing.md.
    process.stdout.write(`${kind}: ${copied} rows, ${JSON.stringify(seconds)} s, ${maxRss} KiB\n`)
  })
})
