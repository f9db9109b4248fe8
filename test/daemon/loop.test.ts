import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { expect, onTestFinished, test, vi } from 'vitest'
import { logInto } from '../../daemon/log.ts'
import { type Loop, loop } from '../../daemon/loop.ts'
import { LoopWatch } from '../../daemon/loop-watch.ts'
import { systemClock } from '../../src/core/time.ts'
import { metricValues } from '../metric-values.ts'

const log = pino({ level: 'silent' })
const never = 3_600_000

function started(work: () => Promise<void>, restMs: number): Loop {
  const one = loop('work', work, never, { log }, { restMs })
  onTestFinished(() => one.stop())
  return one
}

test('work rests between two runs, however often it is woken, and runs once afterwards', async () => {
  const begun: number[] = []
  const one = started(async () => void begun.push(performance.now()), 400)
  one.wake()
  await vi.waitUntil(() => begun.length === 1)
  for (let n = 0; n < 5; n++) {
    one.wake()
    await sleep(5)
  }
  expect(begun).toHaveLength(1)
  await vi.waitUntil(() => begun.length === 2)
  expect(begun[1]! - begun[0]!).toBeGreaterThanOrEqual(395)
  await sleep(600)
  expect(begun).toHaveLength(2)
})

test('work that is stopped while it rests does not run again', async () => {
  let runs = 0
  const one = started(async () => void runs++, 50)
  one.wake()
  await vi.waitUntil(() => runs === 1)
  one.wake()
  await one.stop()
  await sleep(80)
  expect(runs).toBe(1)
})

test('a failed run is tried again', async () => {
  let runs = 0
  const work = async () => {
    runs++
    if (runs === 1) throw new Error('not now')
  }
  const one = started(work, 0)
  one.wake()
  await vi.waitUntil(() => runs === 1)
  one.wake()
  await vi.waitUntil(() => runs === 2, { timeout: 5000 })
})

test('work that keeps failing is logged once per minute per error, and its recovery once', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  const lines: string[] = []
  const loggedLines = () => lines.splice(0).map((line) => JSON.parse(line) as Record<string, unknown>)
  let fault: string | undefined = 'no database'
  const work = async () => {
    if (fault !== undefined) throw new Error(fault)
  }
  const log = logInto({ write: (line) => void lines.push(line) }, 'info')
  const one = loop('work', work, 1000, { log })
  onTestFinished(() => one.stop())
  const failed = (message: string, failures: number) => ({
    level: 50,
    loop: 'work',
    failures,
    err: { message },
    msg: 'background work failed',
  })
  await vi.advanceTimersByTimeAsync(60_900)
  expect(loggedLines()).toMatchObject([failed('no database', 1)])
  await vi.advanceTimersByTimeAsync(1000)
  expect(loggedLines()).toMatchObject([failed('no database', 61)])
  fault = 'no space'
  await vi.advanceTimersByTimeAsync(5000)
  expect(loggedLines()).toMatchObject([failed('no space', 62)])
  fault = undefined
  await vi.advanceTimersByTimeAsync(5000)
  expect(loggedLines()).toMatchObject([
    { level: 30, loop: 'work', failures: 66, msg: 'background work continues' },
  ])
  fault = 'no space'
  await vi.advanceTimersByTimeAsync(1000)
  expect(loggedLines()).toMatchObject([failed('no space', 1)])
})

test('metrics have the last success, the duration and the failures of each loop', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  const metrics = new Registry()
  const loops = new LoopWatch(systemClock, metrics)
  const begun = Date.now() / 1000
  let isBroken = false
  const work = async () => {
    await new Promise((resolve) => setTimeout(resolve, 2000))
    if (isBroken) throw new Error('no')
  }
  const one = loop('work', work, 10_000, { log, loops })
  onTestFinished(() => one.stop())
  const read = async () => ({
    success: (await metricValues(metrics, 'svc_loop_last_success_timestamp_seconds')).work! - begun,
    failures: (await metricValues(metrics, 'svc_loop_failures_total')).work,
    interval: (await metricValues(metrics, 'svc_loop_interval_seconds')).work,
    lines: (await metrics.getSingleMetricAsString('svc_loop_duration_seconds')).split('\n'),
  })
  expect(await read()).toMatchObject({ success: 0, failures: 0, interval: 10 })
  await vi.advanceTimersByTimeAsync(12_100)
  const first = await read()
  expect(first.success).toBeCloseTo(12, 1)
  expect(first).toMatchObject({ failures: 0 })
  expect(first.lines).toContain('svc_loop_duration_seconds_count{loop="work"} 1')
  expect(first.lines).toContain('svc_loop_duration_seconds_bucket{le="1",loop="work"} 0')
  expect(first.lines).toContain('svc_loop_duration_seconds_bucket{le="5",loop="work"} 1')
  isBroken = true
  await vi.advanceTimersByTimeAsync(10_000)
  const second = await read()
  expect(second).toMatchObject({ success: first.success, failures: 1 })
  expect(second.lines).toContain('svc_loop_duration_seconds_count{loop="work"} 2')
})
