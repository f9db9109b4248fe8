import { join } from 'node:path'
import Database from 'better-sqlite3'
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { copyLockKey, WriteGate } from '../../../src/storage/copy/write-gate.ts'
import { isSoak } from '../../depth.ts'
import type { SvcProcess } from '../backup/binary.ts'
import { emptyPlace, kinds, type Place, withStorage } from '../backup/filled.ts'
import { placeWithRows } from '../backup/many-rows.ts'
import { until } from '../process.ts'
import { planned } from './copies.ts'
import { copyTo, isWritable } from './killing.ts'

const patience = 300_000
const busy =
  /Another (svc serve, )?svc db restore or svc db copy (works on|uses) .*: wait for it to end, or end its process if it hangs\./

const asked = async <T>(databaseUrl: string, text: string): Promise<T[]> => {
  const client = new pg.Client(databaseUrl)
  await client.connect()
  return client
    .query(text)
    .then(({ rows }) => rows as T[])
    .finally(() => client.end())
}

/** What the copy has recorded; 0 before it has begun. */
async function chunksIn({ dataDir, databaseUrl }: Place): Promise<number> {
  const count = 'select count(*) as chunks from svc_copy_chunks'
  try {
    if (databaseUrl !== undefined)
      return Number((await asked<{ chunks: number }>(databaseUrl, count))[0]!.chunks)
    const database = new Database(join(dataDir, 'svc.sqlite'), { readonly: true })
    try {
      return database.prepare(count).pluck().get() as number
    } finally {
      database.close()
    }
  } catch {
    return 0
  }
}

/** Waits until the service would be told to refuse writes, or to take them again. */
const untilClosed = (from: Place, isClosed: boolean, ms: number): Promise<void> =>
  withStorage(from, async (storage) => {
    const gate = new WriteGate({ storage, dataDir: from.dataDir }, () => {})
    try {
      await until(async () => {
        await gate.look()
        return (gate.closure !== undefined) === isClosed
      }, ms)
    } finally {
      gate.close()
    }
  })

const freeze = (copy: SvcProcess): void => copy.kill('SIGSTOP')

async function end(copy: SvcProcess): Promise<void> {
  copy.kill()
  expect(await copy.ended).toMatchObject({ signal: 'SIGKILL' })
}

/** As a copy that is frozen between two commits leaves its target. */
function writingTo(dataDir: string): () => void {
  const database = new Database(join(dataDir, 'svc.sqlite'))
  database.exec('begin immediate')
  return () => database.close()
}

async function assertRefused(from: Place, to: Place, says: RegExp): Promise<void> {
  const { code, stderr } = await copyTo(from, to).ended
  expect([code, stderr]).toEqual([1, expect.stringMatching(says)])
}

async function assertCompletes(from: Place, to: Place): Promise<void> {
  const { code, stderr, stdout } = await copyTo(from, to).ended
  expect([code, stderr]).toEqual([0, ''])
  expect(JSON.parse(stdout).tables.agent_logs.rows).toBeGreaterThanOrEqual(12_000)
  expect(await isWritable(from)).toBe(false)
}

describe.each(kinds)('a copy of %s that is frozen', (kind) => {
  const target = () => emptyPlace(kind === 'sqlite' ? 'postgres' : 'sqlite')

  it('in its first pass keeps the next one out, which says so, and goes on once the process has ended', {
    timeout: patience,
  }, async () => {
    const [from, to] = [await placeWithRows(kind, 12_000), await target()]
    const copy = copyTo(from, to)
    await until(async () => !copy.running || (await chunksIn(to)) > 3, 60_000)
    freeze(copy)
    await assertRefused(from, to, busy)
    expect(await isWritable(from)).toBe(true)
    await end(copy)
    const letGo = to.databaseUrl === undefined ? writingTo(to.dataDir) : () => {}
    const { target: found } = await planned(from, to)
    letGo()
    expect(found).toMatchObject({ state: 'unfinished', rows: expect.any(Number) })
    expect((found as { rows: number }).rows).toBeGreaterThan(0)
    await assertCompletes(from, to)
  })

  it('in its last pass holds the writes of the service no longer than its process, or than the server lets it', {
    timeout: patience,
  }, async () => {
    const [from, to] = [await placeWithRows(kind, 12_000), await target()]
    const copy = copyTo(from, to)
    await untilClosed(from, true, 120_000)
    freeze(copy)
    await assertRefused(from, to, busy)
    if (kind === 'sqlite') {
      await assertRefused(
        from,
        await target(),
        /Another svc db copy is in its last part on .*end its process/,
      )
      await end(copy)
    } else {
      // After a minute the server ends the session that keeps the writes away; the same at once.
      const [space, key] = copyLockKey
      const holder = `select pg_terminate_backend(pid) from pg_locks l join pg_database d on d.oid = l.database
        where datname = current_database() and locktype = 'advisory' and granted
          and classid = ${space} and objid = ${key}`
      if (!isSoak) expect(await asked(from.databaseUrl!, holder)).toHaveLength(1)
      await untilClosed(from, false, 120_000)
      expect(await isWritable(from)).toBe(true)
      await assertRefused(from, to, busy)
      // It must not close a source that takes writes again, nor open its target.
      copy.kill('SIGCONT')
      const { code, stderr } = await copy.ended
      expect([code, stderr]).toEqual([1, expect.stringMatching(/./)])
    }
    expect(await isWritable(from)).toBe(true)
    await assertCompletes(from, to)
  })
})
