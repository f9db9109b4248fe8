import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import pg from 'pg'
import { Registry } from 'prom-client'
import { describe, expect, it, test } from 'vitest'
import { ConcurrencyLimit } from '../../daemon/concurrency-limit.ts'
import {
  currentFairShareKey,
  FairQueue,
  FairSemaphore,
  runForService,
  withFairShareKey,
} from '../../src/storage/fair-queue.ts'
import { openStorage } from '../../src/storage/open.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'

describe('the fair queue', () => {
  it('takes turns between groups, and within a group between its members', () => {
    const queue = new FairQueue<string>()
    for (const item of ['a1', 'a2', 'a3']) queue.push(['one', 'a'], item)
    queue.push(['one', 'b'], 'b1')
    queue.push(['two', 'c'], 'c1')
    const order = Array.from({ length: 5 }, () => queue.shift())
    expect(order).toEqual(['a1', 'c1', 'b1', 'a2', 'a3'])
    expect(queue.shift()).toBeUndefined()
    expect(queue.size).toBe(0)
  })

  it('serves the service itself first', () => {
    const queue = new FairQueue<string>()
    queue.push(['one'], 'a')
    queue.push(currentFairShareKey(), 'service')
    expect([queue.shift(), queue.shift()]).toEqual(['service', 'a'])
  })

  it('skips a waiter that was removed', () => {
    const queue = new FairQueue<string>()
    queue.push(['one', 'a'], 'a1')
    queue.push(['two', 'b'], 'b1')
    queue.remove(['one', 'a'], 'a1')
    queue.remove(['one', 'a'], 'a1')
    expect(queue.size).toBe(1)
    expect(queue.shift()).toBe('b1')
  })

  it('leaves one group half of the slots, and the service all of them', async () => {
    const slots = new FairSemaphore(6, 50)
    const take = (group: string) => withFairShareKey([group], () => slots.take())
    const first = await Promise.all([take('a'), take('a'), take('a')])
    // A timeout without a turn is an outage, not overload.
    await expect(take('a')).rejects.toThrow('timeout exceeded when trying to connect')
    const other = await take('b')
    await Promise.all([1, 2].map(() => runForService(() => slots.take())))
    const late = take('a')
    other()
    await expect(late).rejects.toMatchObject({ code: 'unavailable' })
    const next = take('a')
    first[0]!()
    // A second release of one slot has no effect.
    first[0]!()
    ;(await next)()
  })
})

test('one tenant has at most a quarter of the requests in progress, and one device sixteen', async () => {
  const limit = new ConcurrencyLimit(80, new Registry())
  const { promise, resolve } = Promise.withResolvers<void>()
  const run = (tenant: string, deviceId?: string) => limit.run(() => promise, { tenant, deviceId })
  const running = Array.from({ length: 16 }, () => run('a', 'chatty'))
  await expect(run('a', 'chatty')).rejects.toMatchObject({ code: 'unavailable' })
  running.push(...['one', 'two', 'three', undefined].map((deviceId) => run('a', deviceId)))
  await expect(run('a', 'four')).rejects.toMatchObject({ code: 'unavailable' })
  running.push(run('b', 'other'))
  resolve()
  await Promise.all(running)
  await run('a', 'chatty')
})

onEveryEmptyDatabase((kind, open) => {
  test('hundreds of writes of one tenant delay that of another by a few', async () => {
    const { storage } = await open()
    await createNotes(storage)
    let done = 0
    const flood = Array.from({ length: 300 }, (_, id) =>
      withFairShareKey(['hostile', `device ${id % 7}`], () => storage.write((tx) => addNote(tx, id))).then(
        () => {
          done += 1
        },
      ),
    )
    await withFairShareKey(['victim', 'device'], () => storage.write((tx) => addNote(tx, 5000)))
    // On SQLite the batch being written and the next one.
    expect(done).toBeLessThan(200)
    await Promise.all(flood)
    expect(await noteIds(storage.read)).toHaveLength(301)
  })

  if (kind === 'postgres')
    test('admitted read queries wait for no turn', async () => {
      const { databaseUrl, dataDir } = await open()
      const storage = await openStorage({
        databaseUrl: databaseUrl!,
        dataDir,
        readQueries: { timeoutMs: 10_000, atOnce: 6 },
      })
      const ask = () =>
        withFairShareKey(['one'], () => sql`select pg_sleep(1.5)`.execute(storage.readQueries))
      const asked = Array.from({ length: 5 }, ask)
      await expect
        .poll(async () => {
          const running = sql<{ count: number }>`select count(*)::int as count from pg_stat_activity
            where datname = current_database() and state = 'active' and query = 'select pg_sleep(1.5)'`
          return (await running.execute(storage.read)).rows[0]!.count
        })
        .toBe(5)
      await Promise.all(asked)
      await storage.close()
    })

  if (kind === 'postgres')
    test('writes of one tenant that wait for a lock leave connections to the others', async () => {
      const { storage, databaseUrl } = await open()
      await createNotes(storage)
      await storage.write((tx) => addNote(tx, 1))
      const holder = new pg.Client(databaseUrl)
      await holder.connect()
      await holder.query('begin; select * from notes where id = 1 for update')
      const stuck = Array.from({ length: 40 }, () =>
        withFairShareKey(['hostile'], () =>
          storage.write(async (tx) => void (await sql`update notes set body = 'x' where id = 1`.execute(tx))),
        ),
      )
      await sleep(100)
      const begun = performance.now()
      await withFairShareKey(['victim'], () => storage.write((tx) => addNote(tx, 2)))
      expect(performance.now() - begun).toBeLessThan(3000)
      await holder.query('commit')
      await holder.end()
      await Promise.all(stuck)
    })
})
