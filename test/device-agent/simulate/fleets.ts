import { onTestFinished } from 'vitest'
import { agentDialer } from '../../../src/device-agent/connection.ts'
import type { SimulatedAgent } from '../../../src/device-agent/simulate/fleet.ts'
import { openHttpPool } from '../../../src/device-agent/simulate/http-pool.ts'
import { type Plan, parseFailures, parsePlatforms } from '../../../src/device-agent/simulate/plan.ts'
import { type SimulationEvent, simulate } from '../../../src/device-agent/simulate/run.ts'

export type FleetOptions = Partial<Omit<Plan, 'failures' | 'platforms'>> & {
  failures?: string
  platform?: string
  known?: readonly SimulatedAgent[]
}

/** Starts a small fleet against a service in this process; it ends with the test at the latest. */
export async function startFleet(url: string, key: string, options: FleetOptions = {}) {
  const { failures, platform = 'linux/x64', known = [], ...more } = options
  const plan: Plan = {
    count: 4,
    intervalMs: 200,
    websockets: 0,
    logsPerMinute: 0,
    eventsPerMinute: 0,
    version: '0.1.0',
    updateMs: 100,
    forMs: undefined,
    seed: 1,
    ...more,
    failures: parseFailures(failures),
    platforms: parsePlatforms(platform),
  }
  const stop = new AbortController()
  const events: SimulationEvent[] = []
  const kept: SimulatedAgent[][] = []
  const enrolledAll = Promise.withResolvers<void>()
  const ended = simulate({
    url,
    plan,
    known,
    concurrency: 8,
    signal: stop.signal,
    progressMs: 100,
    wire: await openHttpPool({ url, version: plan.version, caFile: undefined, connections: 16 }),
    dial: agentDialer({ url, version: plan.version }, async () => ({})),
    enrollmentKey: async () => key,
    report: (event) => {
      events.push(event)
      if (event.event === 'enrolled') enrolledAll.resolve()
    },
    save: (agents) => void kept.push(agents),
  })
  const enrolled = Promise.race([enrolledAll.promise, ended.then(() => {})])
  // A test that expects a failure awaits `ended`.
  for (const one of [enrolled, ended]) one.catch(() => {})
  onTestFinished(async () => {
    stop.abort()
    await ended.catch(() => {})
  })
  return {
    events,
    /** The states it saved, latest last. */
    kept,
    ended,
    enrolled,
    end: () => {
      stop.abort()
      return ended
    },
  }
}
