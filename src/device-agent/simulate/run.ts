import { NetworkError } from '../../core/client.ts'
import type { Dial } from '../agent.ts'
import { enrollMissing } from './enrollment.ts'
import { type Fleet, pause, type SimulatedAgent } from './fleet.ts'
import { applyReply } from './heartbeat-replies.ts'
import { HeartbeatScheduler } from './heartbeats.ts'
import type { HttpPool } from './http-pool.ts'
import type { Plan } from './plan.ts'
import { startShipping } from './shipping.ts'
import { keepConnected } from './sockets.ts'
import { type FleetStatus, fleetStatus, type Summary } from './summary.ts'
import { Tally } from './tally.ts'

/** Events that a simulation reports. */
export type SimulationEvent =
  /** The service asked to wait while the fleet enrolls. */
  | { event: 'waiting'; seconds: number; enrolled: number }
  | { event: 'enrolled'; agents: number; seconds: number }
  | ({ event: 'progress' } & FleetStatus)

export type Simulation = {
  url: string
  plan: Plan
  wire: HttpPool
  dial: Dial
  /** Most connections used by heartbeats. */
  concurrency: number
  /** Agents of an earlier run. */
  known: readonly SimulatedAgent[]
  /** Called only when there are agents to enroll. */
  enrollmentKey: () => Promise<string>
  report: (event: SimulationEvent) => void
  progressMs: number
  /** Called with the enrolled agents after the enrollment, and at the end. */
  save: (agents: SimulatedAgent[]) => void
  /** Stops everything immediately. */
  signal: AbortSignal
}

/**
 * Enrolls the missing agents of a fleet, and lets it report until the time is over or the signal aborts. @throws
 * NetworkError when the service does not answer at the start, ApiError when the enrollment is refused
 */
export async function simulate(simulation: Simulation): Promise<Summary> {
  const { url, plan, wire, known, report, progressMs, save } = simulation
  const over = new AbortController()
  const signal = AbortSignal.any([simulation.signal, over.signal])
  const agents: Fleet['agents'] = Array.from({ length: plan.count })
  for (const agent of known) if (agent.n <= plan.count) agents[agent.n - 1] = agent
  const tally = new Tally()
  tally.counts.enrolled = agents.filter(Boolean).length
  const fleet: Fleet = { plan, wire, tally, agents, signal, beatNow: (agent) => scheduler.beatNow(agent) }
  const scheduler = new HeartbeatScheduler(fleet, {
    concurrency: simulation.concurrency,
    onReply: (agent, reply) => applyReply(fleet, agent, reply),
  })
  const began = performance.now()
  const secondsGone = () => (performance.now() - began) / 1000
  const enrolled = () => agents.filter((agent) => agent !== undefined)
  let progress: NodeJS.Timeout | undefined
  let lastProgress = { at: began, heartbeats: 0 }
  try {
    const { status, reason } = await wire.send('GET', '/health', {})
    if (status === 0 && !signal.aborted) throw new NetworkError(url, reason)
    scheduler.begin()
    progress = setInterval(() => report({ event: 'progress', ...recent() }), progressMs)
    await enrollMissing(fleet, simulation.enrollmentKey, (ms) => {
      report({ event: 'waiting', seconds: Math.ceil(ms / 1000), enrolled: tally.counts.enrolled })
    })
    if (!signal.aborted) {
      report({ event: 'enrolled', agents: tally.counts.enrolled, seconds: Math.round(secondsGone()) })
    }
    save(enrolled())
    startShipping(fleet)
    if (plan.websockets > 0) void keepConnected(fleet, simulation.dial)
    await pause(plan.forMs ?? 2 ** 31 - 1, signal)
  } finally {
    clearInterval(progress)
    over.abort()
    wire.close()
    save(enrolled())
  }
  const seconds = secondsGone()
  return {
    ...fleetStatus(fleet, tally.times, tally.counts.heartbeats / seconds),
    seconds,
    reasons: Object.fromEntries(tally.reasons),
    memoryMb: Math.round(process.memoryUsage.rss() / 1e6),
  }

  function recent(): FleetStatus {
    const before = lastProgress
    lastProgress = { at: performance.now(), heartbeats: tally.counts.heartbeats }
    const rate = (1000 * (lastProgress.heartbeats - before.heartbeats)) / (lastProgress.at - before.at)
    return fleetStatus(fleet, tally.takeRecent(), rate)
  }
}
