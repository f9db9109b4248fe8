import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import {
  type Fleet,
  newSimulatedAgent,
  type SimulatedAgent,
} from '../../../src/device-agent/simulate/fleet.ts'
import { HeartbeatScheduler } from '../../../src/device-agent/simulate/heartbeats.ts'
import type { Reply } from '../../../src/device-agent/simulate/http-pool.ts'
import { parsePlatforms } from '../../../src/device-agent/simulate/plan.ts'
import { Tally } from '../../../src/device-agent/simulate/tally.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

const good: Reply = { status: 200, body: {}, reason: '200', retryAfterMs: 0 }
const answer = (status: number, more: Partial<Reply> = {}): Reply => ({
  ...good,
  status,
  reason: `${status}`,
  ...more,
})

type Answer = { after?: number; reply?: Reply }
type Says = (n: number, beat: number) => Answer

/** Agents with a heartbeat every ten seconds, and a service with the given replies, on a fake clock. */
function startFleet(
  count: number,
  { concurrency = 8, says = () => ({}) }: { concurrency?: number; says?: Says } = {},
) {
  const stop = new AbortController()
  const sent: { n: number; at: number }[] = []
  const began = performance.now()
  let answering = says
  const plan = {
    count,
    intervalMs: 10_000,
    websockets: 0,
    logsPerMinute: 0,
    eventsPerMinute: 0,
    version: '1.0.0',
    platforms: parsePlatforms('linux/x64'),
    failures: new Map(),
    updateMs: 1000,
    forMs: undefined,
    seed: 1,
  }
  const agents = Array.from({ length: count }, (_, at) =>
    newSimulatedAgent(at + 1, `${at + 1}`, 'token', '1.0.0'),
  )
  const fleet: Fleet = {
    plan,
    agents,
    tally: new Tally(),
    signal: stop.signal,
    beatNow: (agent) => scheduler.beatNow(agent),
    wire: {
      async send(_, path) {
        const n = Number(path.split('/')[2])
        sent.push({ n, at: performance.now() - began })
        const { after = 1, reply = good } = answering(n, sent.filter((one) => one.n === n).length)
        await new Promise((resolve) => setTimeout(resolve, after))
        return reply
      },
      close() {},
    },
  }
  const replied: SimulatedAgent[] = []
  const scheduler = new HeartbeatScheduler(fleet, {
    concurrency,
    onReply: (agent) => void replied.push(agent),
  })
  scheduler.begin()
  return {
    fleet,
    sent,
    replied,
    stop,
    counts: fleet.tally.counts,
    says: (how: Says) => {
      answering = how
    },
    go: (seconds: number) => vi.advanceTimersByTimeAsync(seconds * 1000),
    times: (n: number) => sent.filter((one) => one.n === n).map(({ at }) => Math.round(at)),
  }
}

describe('heartbeats', () => {
  it('are spread evenly over the interval, one per agent in a fixed order', async () => {
    const { go, sent, counts } = startFleet(100)
    await go(29.99)
    expect(sent).toHaveLength(300)
    for (const [turn, { n, at }] of sent.entries()) {
      expect(n).toBe((turn % 100) + 1)
      expect(at).toBeGreaterThanOrEqual(turn * 100 - 0.001)
      expect(at).toBeLessThan(turn * 100 + 3)
    }
    expect(counts).toMatchObject({ late: 0, missed: 0, failures: 0 })
  })

  it('wait for a connection when all are busy, and then count as late', async () => {
    const { go, sent, counts } = startFleet(10, { concurrency: 1, says: () => ({ after: 1500 }) })
    await go(20)
    expect(sent.length).toBeLessThan(15)
    expect(counts.late).toBeGreaterThan(3)
    expect(counts.missed).toBe(0)
  })

  it('that are not answered before the next is due count as missed', async () => {
    const { go, counts } = startFleet(2, { says: () => ({ after: 25_000 }) })
    await go(30)
    expect(counts.missed).toBeGreaterThanOrEqual(4)
  })

  it('that fail are retried with growing pauses, and counted once they succeed', async () => {
    const { go, says, times, counts } = startFleet(1, { says: () => ({ reply: answer(503) }) })
    await go(4)
    expect(times(1).length).toBe(3)
    expect(counts).toMatchObject({ heartbeats: 0, failures: 3, missed: 0 })
    says(() => ({}))
    await go(5)
    expect(counts).toMatchObject({ heartbeats: 1, failures: 3, late: 1, missed: 0 })
  })

  it('wait for as long as the service requests', async () => {
    const { go, times } = startFleet(1, {
      says: () => ({ reply: answer(429, { retryAfterMs: 7000 }) }),
    })
    await go(6.9)
    expect(times(1)).toEqual([0])
    await go(0.3)
    expect(times(1)).toHaveLength(2)
  })

  it.each([
    [401, '401 invalid_agent_credentials'],
    [403, '403 device_decommissioned'],
    [404, '404 not_found'],
  ])('end with %i: the service refuses the agent for good', async (status, reason) => {
    const refused = { reply: answer(status, { reason }) }
    const { go, times, counts, fleet } = startFleet(2, { says: (n) => (n === 1 ? refused : {}) })
    await go(60)
    expect(times(1)).toHaveLength(1)
    expect(times(2).length).toBeGreaterThan(4)
    expect(counts).toMatchObject({ refused: 1, failures: 1, missed: 0 })
    expect(fleet.agents[0]!.state).toBe('gone')
  })

  it('of a quarantined agent are refused, each at its interval, until it is released', async () => {
    const refused = { reply: answer(403, { reason: '403 device_quarantined' }) }
    const { go, times, counts } = startFleet(1, { says: (_, beat) => (beat < 4 ? refused : {}) })
    await go(41)
    expect(times(1)).toEqual([0, 10_000, 20_000, 30_000, 40_000])
    expect(counts).toMatchObject({ refused: 3, missed: 0, heartbeats: 2 })
  })

  it('are not sent by agents that are away, and not missed', async () => {
    const { go, times, counts, fleet } = startFleet(2)
    await go(1)
    fleet.agents[0]!.state = 'away'
    await go(60)
    expect(times(1)).toHaveLength(1)
    expect(counts.missed).toBe(0)
  })

  it('out of turn are sent at once, and not twice', async () => {
    const { go, times, fleet } = startFleet(2)
    await go(3)
    fleet.beatNow(fleet.agents[0]!)
    fleet.beatNow(fleet.agents[0]!)
    await go(1)
    expect(times(1)).toEqual([0, 3000])
  })

  it('end with the simulation', async () => {
    const { go, sent, stop } = startFleet(5)
    await go(1)
    const before = sent.length
    stop.abort()
    await go(60)
    expect(sent).toHaveLength(before)
  })
})
