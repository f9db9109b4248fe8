import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { expect, onTestFinished, test } from 'vitest'
import { classifyDatabaseError, isOutage } from '../../src/storage/database-errors.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { openMigrated } from '../databases.ts'
import { administer } from '../postgres-databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'
import { lossyProxy } from './packet-loss-proxy.ts'

const statementMs = 1000

async function behindProxy() {
  const { databaseUrl, dataDir, close } = await openMigrated('postgres')
  onTestFinished(close)
  const proxy = await lossyProxy(databaseUrl!)
  const storage = await openStorage({
    dataDir,
    databaseUrl: proxy.databaseUrl,
    postgres: { poolSize: 3, statementMs },
  })
  onTestFinished(() => storage.close())
  await createNotes(storage)
  await storage.write((tx) => addNote(tx, 1))
  return { proxy, storage }
}

async function failureOf(work: Promise<unknown>): Promise<{ error: unknown; ms: number }> {
  const begun = performance.now()
  const error = await work.then(
    () => 'succeeded',
    (error: unknown) => error,
  )
  return { error, ms: performance.now() - begun }
}

const count = (storage: Storage) => noteIds(storage.read)

test('silently dropped connections fail what waits for them, and are replaced', async () => {
  const { proxy, storage } = await behindProxy()
  // More reads than connections.
  await Promise.all(Array.from({ length: 6 }, () => count(storage)))
  proxy.swallow()
  const waiting = Array.from({ length: 9 }, () => failureOf(count(storage)))
  const writing = failureOf(storage.write((tx) => addNote(tx, 2)))
  const first = await Promise.all([...waiting.slice(0, 3)])
  for (const { error, ms } of first) {
    expect(error).toMatchObject({ message: expect.stringMatching(/^Connection terminated: no answer/) })
    expect(isOutage(error)).toBe(true)
    expect(ms).toBeLessThan(2 * statementMs + 2000)
  }
  proxy.recover()
  for (const { error } of await Promise.all([...waiting, writing])) {
    if (error !== 'succeeded') expect(isOutage(error)).toBe(true)
  }
  expect(await count(storage)).toContain(1)
  await storage.write((tx) => addNote(tx, 3))
  expect(await count(storage)).toContain(3)
})

test('readiness reports an unreachable database within seconds, with every connection stuck', async () => {
  const { proxy, storage } = await behindProxy()
  await storage.check()
  proxy.swallow()
  const { error, ms } = await failureOf(storage.check())
  expect(classifyDatabaseError(error)).toBe('unreachable')
  expect(ms).toBeLessThan(4000)
  proxy.recover()
  await expect
    .poll(() => failureOf(storage.check()), { timeout: 10_000 })
    .toMatchObject({ error: 'succeeded' })
})

test('closing does not wait for a silent database', async () => {
  const { proxy, storage } = await behindProxy()
  proxy.swallow()
  const waiting = failureOf(storage.write((tx) => addNote(tx, 2)))
  await sleep(50)
  const begun = performance.now()
  await storage.close()
  expect(performance.now() - begun).toBeLessThan(3000)
  expect(isOutage((await waiting).error)).toBe(true)
})

test('the database ends a statement that takes too long, and its connection stays usable', async () => {
  const { storage } = await behindProxy()
  const { error } = await failureOf(sql`select pg_sleep(20)`.execute(storage.read))
  expect(classifyDatabaseError(error)).toBe('too slow')
  expect(await count(storage)).toEqual([1])
})

test('an idle transaction blocks others no longer than the statement timeout', async () => {
  const { storage } = await behindProxy()
  const stopped = failureOf(
    storage.write(async (tx) => {
      await sql`update notes set body = 'held' where id = 1`.execute(tx)
      await sleep(2500)
    }),
  )
  await sleep(100)
  const held = await failureOf(
    storage.write((tx) => sql`update notes set body = 'x' where id = 1`.execute(tx)),
  )
  expect(held.ms).toBeLessThan(2 * statementMs + 500)
  expect((await stopped).error).not.toBe('succeeded')
})

test('a read-only primary is reported as such', async () => {
  const { databaseUrl, dataDir, close } = await openMigrated('postgres')
  onTestFinished(close)
  const name = new URL(databaseUrl!).pathname.slice(1)
  const storage = await openStorage({ dataDir, databaseUrl })
  onTestFinished(() => storage.close())
  await storage.check()
  await administer(async (client) => {
    await client.query(`alter database ${name} set default_transaction_read_only = on`)
    await client.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`)
  })
  await expect
    .poll(async () => classifyDatabaseError((await failureOf(storage.check())).error), { timeout: 10_000 })
    .toBe('read-only')
  expect(await sql<{ one: number }>`select 1 as one`.execute(storage.read)).toMatchObject({
    rows: [{ one: 1 }],
  })
  await administer((client) => client.query(`alter database ${name} set default_transaction_read_only = off`))
  await administer((client) =>
    client.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`),
  )
  await expect
    .poll(() => failureOf(storage.check()), { timeout: 10_000 })
    .toMatchObject({ error: 'succeeded' })
})
