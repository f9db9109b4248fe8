import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { ReadQueryQueue } from '../../daemon/read-query-queue.ts'
import type { Db } from '../../src/storage/open.ts'
import { metricValues } from '../metric-values.ts'

const limits = { timeoutMs: 1000, atOnce: 3, perTenant: 3, perCaller: 2, waitMs: 200 }

function queueWith(settings: Partial<typeof limits> = {}) {
  const metrics = new Registry()
  const queue = new ReadQueryQueue({ readQueries: {} as Db }, { ...limits, ...settings }, metrics)
  const running: { caller: string; end(): void }[] = []
  const ask = (caller: string, tenant = 'everybody') =>
    queue.run({ id: caller, tenant }, async () => {
      const { promise, resolve } = Promise.withResolvers<string>()
      running.push({ caller, end: () => resolve(caller) })
      return promise
    })
  const runs = () => running.map(({ caller }) => caller).join('')
  const metric = (name: string) => metricValues(metrics, name)
  return { queue, running, ask, runs, metric }
}
const tick = () => new Promise((resolve) => setImmediate(resolve))

describe('concurrent read queries', () => {
  it('are limited per caller and in total', async () => {
    const { ask, runs, running, metric } = queueWith()
    const asked = [ask('a'), ask('a'), ask('a'), ask('b'), ask('c')]
    await tick()
    expect(runs()).toBe('aab')
    expect(await metric('svc_questions_at_once')).toEqual({ running: 3, waiting: 2 })
    // A caller at its limit lets the next one pass.
    running[2]!.end()
    await tick()
    expect(runs()).toBe('aabc')
    running[0]!.end()
    await tick()
    expect(runs()).toBe('aabca')
    for (const one of running) one.end()
    expect(await Promise.all(asked)).toEqual(['a', 'a', 'a', 'b', 'c'])
    expect(await metric('svc_questions_at_once')).toEqual({ running: 0, waiting: 0 })
    expect(await metric('svc_questions_total')).toMatchObject({ answered: 5, refused: 0 })
  })

  it('of one tenant leave slots for other tenants, however many its callers ask', async () => {
    const { ask, runs, running } = queueWith({ perTenant: 2 })
    const asked = [ask('a', 'one'), ask('b', 'one'), ask('c', 'one'), ask('d', 'one'), ask('z', 'two')]
    await tick()
    expect(runs()).toBe('abz')
    running[2]!.end()
    await tick()
    expect(runs()).toBe('abz')
    asked.push(ask('y', 'two'))
    await tick()
    expect(runs()).toBe('abzy')
    running[0]!.end()
    await tick()
    expect(runs()).toBe('abzyc')
    running[1]!.end()
    await tick()
    for (const one of running) one.end()
    expect(await Promise.all(asked)).toEqual(['a', 'b', 'c', 'd', 'z', 'y'])
  })

  it('are refused after a short wait, and then no longer wait for a slot', async () => {
    const { ask, runs, running, metric } = queueWith({ waitMs: 20 })
    const asked = [ask('a'), ask('a')]
    const refused = { code: 'too_many_questions', extras: { retryAfter: 2 } }
    await expect(ask('a')).rejects.toMatchObject(refused)
    running[0]!.end()
    running[1]!.end()
    await Promise.all(asked)
    expect(runs()).toBe('aa')
    expect(await metric('svc_questions_at_once')).toMatchObject({ waiting: 0 })
    expect(await metric('svc_questions_total')).toMatchObject({ refused: 1 })
  })

  it('of one caller have a bounded queue', async () => {
    const { ask, running } = queueWith({ waitMs: 5000 })
    const asked = Array.from({ length: 2 + 16 }, () => ask('a'))
    await expect(ask('a')).rejects.toMatchObject({ code: 'too_many_questions' })
    const other = ask('b')
    for (let n = 0; n < running.length || n < 19; n++) {
      running[n]!.end()
      await tick()
      await tick()
    }
    expect((await Promise.all([...asked, other])).length).toBe(19)
  })

  it('of many statements have the time of one in all', async () => {
    const { queue, metric } = queueWith({ timeoutMs: 0 })
    const caller = { id: 'a', tenant: 'everybody' }
    await expect(
      queue.run(caller, async (_, checkTime) => {
        checkTime()
        return 'too late'
      }),
    ).rejects.toMatchObject({ code: 'question_too_slow', extras: { retryAfter: 30 } })
    expect(await metric('svc_questions_total')).toMatchObject({ too_slow: 1, failed: 0 })
    const { queue: patient } = queueWith({ timeoutMs: 600_000 })
    const answer = patient.run(caller, async (_, checkTime) => {
      checkTime()
      return 'in time'
    })
    expect(await answer).toBe('in time')
  })

  it('release their slot on failure, and report a timeout', async () => {
    const { queue, metric } = queueWith({ atOnce: 1 })
    const fail = (error: unknown) => queue.run({ id: 'a', tenant: 'everybody' }, () => Promise.reject(error))
    await expect(fail(new Error('other'))).rejects.toThrow('other')
    for (const code of ['57014', 'SQLITE_INTERRUPT']) {
      await expect(fail(Object.assign(new Error('late'), { code }))).rejects.toMatchObject({
        code: 'question_too_slow',
        message: expect.stringContaining('longer than 1 s'),
        extras: { retryAfter: 30 },
      })
    }
    expect(await metric('svc_questions_total')).toEqual({ answered: 0, failed: 1, too_slow: 2, refused: 0 })
    expect(await queue.run({ id: 'a', tenant: 'everybody' }, async () => 'well')).toBe('well')
  })
})
