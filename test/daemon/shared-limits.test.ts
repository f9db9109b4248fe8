import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { deleteExpired } from '../../daemon/background.ts'
import { SharedLimiter } from '../../daemon/shared-limiter.ts'
import { windowOf } from '../../daemon/shared-windows.ts'
import type { Problem } from '../../src/core/errors.ts'
import {
  defaultLimits,
  type Limit,
  type LimitName,
  type Limits,
  type SharedLimit,
} from '../../src/core/limits.ts'
import { addSeconds } from '../../src/core/time.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { onEveryDatabase, type TestDatabase } from '../databases.ts'
import { testClock } from '../harness.ts'
import { failWrites } from '../laws/failing-writes.ts'

const shared = (Object.keys(defaultLimits) as LimitName[]).filter(
  (name): name is SharedLimit => defaultLimits[name].counted === 'shared',
)

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

/** `counted`, or the seconds until it would be. */
async function taking(limiter: SharedLimiter, name: SharedLimit, key: string): Promise<'counted' | number> {
  try {
    await limiter.take(name, key)
    return 'counted'
  } catch (error) {
    const { code, extras } = error as Problem
    if (code !== 'rate_limited') throw error
    return extras.retryAfter!
  }
}

onEveryDatabase((kind, open) => {
  /** Connections of another process to the same database. */
  const another = async ({ dataDir, databaseUrl }: TestDatabase): Promise<Storage> => {
    const storage = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
    onTestFinished(() => storage.close())
    return storage
  }
  const clock = testClock()
  const limiterOn = (storage: Storage, limits: Partial<Record<LimitName, Limit>>, on = {}) =>
    new SharedLimiter({
      storage,
      clock,
      limits: limits as Limits,
      pepper: 'a pepper',
      otherPepper: undefined,
      ...on,
    })
  const rowsOf = ({ storage }: TestDatabase) =>
    storage.read.selectFrom('rate_limit_windows').selectAll().orderBy('id').execute()

  /** A limiter with one limit of ten seconds. */
  const window = async (count: number) => {
    const database = await open()
    const limits = { MFA: { count, seconds: 10 } }
    const limiter = limiterOn(database.storage, limits)
    return { database, limits, limiter, take: () => taking(limiter, 'MFA', 'someone') }
  }

  describe('a limit that all processes count together', () => {
    it.each(shared)('admits its count in all, and no more after a restart: %s', async (name) => {
      const database = await open()
      const onRefused = vi.fn()
      const two = [database.storage, await another(database)].map((one) =>
        limiterOn(one, defaultLimits, { onRefused }),
      )
      const { count, seconds } = defaultLimits[name]
      const outcomes = await Promise.all(numbers(count + 4).map((n) => taking(two[n % 2]!, name, 'someone')))
      expect(outcomes.filter((one) => one === 'counted')).toHaveLength(count)
      expect(outcomes.filter((one) => one !== 'counted')).toEqual([seconds, seconds, seconds, seconds])
      expect(onRefused.mock.calls).toEqual([[name], [name], [name], [name]])
      const restarted = limiterOn(await another(database), defaultLimits)
      expect(await taking(restarted, name, 'someone')).toBe(seconds)
      expect(await taking(restarted, name, 'somebody else')).toBe('counted')
    })

    it('admits exactly its count of 200 at once at two processes', async () => {
      const { database, limits, limiter } = await window(37)
      const two = [limiter, limiterOn(await another(database), limits)]
      const outcomes = await Promise.all(numbers(200).map((n) => taking(two[n % 2]!, 'MFA', 'someone')))
      expect(outcomes.filter((one) => one === 'counted')).toHaveLength(37)
    })

    it('frees each place when its own event is old enough; refused ones are not counted', async () => {
      const { take } = await window(2)
      expect(await take()).toBe('counted')
      clock.forward(4)
      expect([await take(), await take()]).toEqual(['counted', 6])
      clock.forward(5.999)
      expect(await take()).toBe(1)
      clock.forward(0.001)
      expect([await take(), await take()]).toEqual(['counted', 4])
      clock.forward(4)
      expect([await take(), await take()]).toEqual(['counted', 6])
      clock.forward(60)
      expect([await take(), await take(), await take()]).toEqual(['counted', 'counted', 10])
    })

    it('of more than a thousand is kept in slots, each of which expires with its last event', async () => {
      const { database, take } = await window(1500)
      for (const _ of numbers(3)) {
        await take()
        clock.forward(0.004)
      }
      const [row] = await rowsOf(database)
      const [first, ...others] = JSON.parse(row!.events) as [number, number][]
      expect([first![1], others.length]).toEqual([3, 0])
      expect(first![0]).toBe(Date.parse(clock()) - 4)
    })

    it('admits as many as a lowered setting allows once enough have expired', async () => {
      const { database, take } = await window(5)
      for (const _ of numbers(5)) {
        await take()
        clock.forward(1)
      }
      const lowered = limiterOn(database.storage, { MFA: { count: 2, seconds: 10 } })
      expect(await taking(lowered, 'MFA', 'someone')).toBe(8)
      clock.forward(8)
      expect(await taking(lowered, 'MFA', 'someone')).toBe('counted')
    })

    it('is counted under both keys while the key of its digests is changed', async () => {
      const { database, limits } = await window(4)
      const [old, changed] = ['the old one', 'the new one']
      const before = limiterOn(database.storage, limits, { pepper: old })
      const first = limiterOn(database.storage, limits, { pepper: old, otherPepper: changed })
      const second = limiterOn(await another(database), limits, { pepper: changed, otherPepper: old })
      const after = limiterOn(database.storage, limits, { pepper: changed })
      const outcomes = [await taking(before, 'MFA', 'a')]
      outcomes.push(...(await Promise.all(numbers(8).map((n) => taking(n % 2 ? first : second, 'MFA', 'a')))))
      expect(outcomes.filter((one) => one === 'counted')).toHaveLength(4)
      const same = limiterOn(database.storage, limits, { pepper: old, otherPepper: old })
      const five = [1, 2, 3, 4, 5]
      expect(await Promise.all(five.map(() => taking(same, 'MFA', 'c')))).toEqual([
        ...Array(4).fill('counted'),
        10,
      ])
      await taking(second, 'MFA', 'b')
      await taking(first, 'MFA', 'b')
      await taking(second, 'MFA', 'b')
      expect([await taking(after, 'MFA', 'b'), await taking(after, 'MFA', 'b')]).toEqual(['counted', 10])
    })

    it('fails all who wait for a window with the first of them, and counts none', async () => {
      const { database, limiter } = await window(3)
      const cure = await failWrites(database.storage, 'update', 'rate_limit_windows', `new.id <> ''`)
      const write = vi.spyOn(database.storage, 'write')
      const outcomes = await Promise.allSettled(numbers(20).map(() => limiter.take('MFA', 'a')))
      expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(20)
      expect(write).toHaveBeenCalledTimes(1)
      write.mockRestore()
      await cure()
      const again = await Promise.all(numbers(4).map(() => taking(limiter, 'MFA', 'a')))
      expect(again).toEqual(['counted', 'counted', 'counted', 10])
    })

    it('is off without a count', async () => {
      const database = await open()
      const limiter = limiterOn(database.storage, {})
      for (const _ of numbers(20)) expect(await taking(limiter, 'MFA', 'a')).toBe('counted')
      expect(await rowsOf(database)).toEqual([])
    })
  })

  describe('a clock that is set back', () => {
    it('neither gives an attempt back nor locks anybody out for longer than the window', async () => {
      const { database, limits } = await window(2)
      let now = '2026-03-02T12:00:00.000Z'
      const set = limiterOn(database.storage, limits, { clock: () => now })
      const other = limiterOn(await another(database), limits, { clock: () => now })
      expect([await taking(set, 'MFA', 'a'), await taking(set, 'MFA', 'a')]).toEqual(['counted', 'counted'])
      expect(await taking(set, 'MFA', 'a')).toBe(10)
      now = '2026-03-01T12:00:00.000Z'
      expect(await taking(set, 'MFA', 'a')).toBe(10)
      now = addSeconds(now, 4)
      expect(await taking(other, 'MFA', 'a'), 'the window does not begin anew').toBe(6)
      now = addSeconds(now, 6)
      expect([await taking(other, 'MFA', 'a'), await taking(set, 'MFA', 'a')]).toEqual(['counted', 'counted'])
      expect(await taking(set, 'MFA', 'a')).toBe(10)
    })

    it('by less than clocks may differ frees no place early', async () => {
      const { database, limits } = await window(2)
      let now = '2026-03-02T12:00:00.000Z'
      const limiter = limiterOn(database.storage, limits, { clock: () => now })
      await taking(limiter, 'MFA', 'a')
      now = addSeconds(now, -2)
      await taking(limiter, 'MFA', 'a')
      expect(await taking(limiter, 'MFA', 'a')).toBe(10)
      now = addSeconds(now, 10)
      expect([await taking(limiter, 'MFA', 'a'), await taking(limiter, 'MFA', 'a')]).toEqual(['counted', 2])
    })
  })

  describe('the table of windows', () => {
    it('is not written by a flood of refused attempts', async () => {
      const { database, limits, limiter, take } = await window(3)
      await Promise.all(numbers(3).map(take))
      const rows = await rowsOf(database)
      const fresh = limiterOn(database.storage, limits)
      const write = vi.spyOn(database.storage, 'write')
      const flood = (one: SharedLimiter) =>
        Promise.all(numbers(1000).map(() => taking(one, 'MFA', 'someone')))
      for (const one of [limiter, fresh, fresh]) expect(new Set(await flood(one))).toEqual(new Set([10]))
      // Each of the two asked once.
      expect(write).toHaveBeenCalledTimes(2)
      expect(await rowsOf(database)).toEqual(rows)
      write.mockRestore()
    })

    it('is asked again for the oldest of 10,000 full windows', async () => {
      const { database, limiter } = await window(1)
      const keys = numbers(kind === 'sqlite' ? 10_100 : 300)
      const all = async () => (await Promise.all(keys.map((n) => taking(limiter, 'MFA', `${n}`)))).length
      await all()
      await all()
      expect(limiter.size).toBeLessThanOrEqual(Math.min(keys.length, 10_000))
      const write = vi.spyOn(database.storage, 'write')
      expect(await taking(limiter, 'MFA', `${keys.at(-1)}`)).toBe(10)
      expect(write).not.toHaveBeenCalled()
      expect(await taking(limiter, 'MFA', '0')).toBe(10)
      expect(write).toHaveBeenCalledTimes(kind === 'sqlite' ? 1 : 0)
      write.mockRestore()
    })

    it('has at most 1,048,576 rows of each limit, which tell nobody whose they are', async () => {
      const database = await open()
      const limiter = limiterOn(database.storage, defaultLimits)
      const keys = ['192.0.2.7', 'ada@example.com', '+4915112345678']
      for (const name of shared) for (const key of keys) await limiter.take(name, key)
      const rows = await rowsOf(database)
      expect(rows.length).toBeGreaterThan(shared.length * 2)
      for (const { id } of rows) expect(id).toMatch(/^[A-Z_]+ [0-9a-f]{5}$/)
      for (const { events } of rows) expect(events).toMatch(/^\[\[\d+,1\]\]$/)
      expect(windowOf('a pepper', 'MFA', 'a')).not.toBe(windowOf('another', 'MFA', 'a'))
      expect(windowOf('a pepper', 'MFA', 'a').slice(-5)).not.toBe(windowOf('a pepper', 'SMS', 'a').slice(-5))
    })

    it('keeps every window until it has expired, however many keys somebody makes up', async () => {
      const { database, limiter, take } = await window(1)
      expect(await take()).toBe('counted')
      await Promise.all(numbers(500).map((n) => taking(limiter, 'MFA', `made up ${n}`)))
      const restarted = limiterOn(database.storage, { MFA: { count: 1, seconds: 10 } })
      expect(await taking(restarted, 'MFA', 'someone')).toBe(10)
    })

    it('is swept of expired windows, in batches, and of no others', async () => {
      const { database, limiter, take } = await window(2)
      const many = 2 * database.storage.traits.batchSize + 1
      await Promise.all(numbers(many).map((n) => limiter.take('MFA', `old ${n}`)))
      clock.forward(5)
      await take()
      clock.forward(5)
      await deleteExpired(database.storage, clock())
      expect((await rowsOf(database)).map(({ id }) => id)).toEqual([windowOf('a pepper', 'MFA', 'someone')])
      expect([await take(), await take()]).toEqual(['counted', 5])
      clock.forward(10)
      await deleteExpired(database.storage, clock())
      expect(await rowsOf(database)).toEqual([])
    })

    it('is swept of all others when the database refuses to delete one', async () => {
      const { database, limiter } = await window(1)
      await Promise.all(numbers(20).map((n) => limiter.take('MFA', `${n}`)))
      const bad = windowOf('a pepper', 'MFA', '7')
      await failWrites(database.storage, 'delete', 'rate_limit_windows', `old.id = '${bad}'`)
      clock.forward(10)
      await expect(deleteExpired(database.storage, clock())).rejects.toThrow('poisoned')
      expect((await rowsOf(database)).map(({ id }) => id)).toEqual([bad])
    })
  })
})
