import type { Heartbeat } from '../../agents/contract.ts'
import { backoffMs, type Fleet, goOffline, pause, type SimulatedAgent } from './fleet.ts'
import type { Reply } from './http-pool.ts'
import { machineOf, metricsOf } from './machine.ts'
import { seededRandom } from './seeded-random.ts'

/**
 * Sends heartbeats evenly over the interval: each agent has a fixed turn in it. A turn at which all connections are
 * busy waits for one, and is late by that time.
 */
export class HeartbeatScheduler {
  readonly #fleet: Fleet
  readonly #concurrency: number
  readonly #onReply: (agent: SimulatedAgent, reply: unknown) => void
  /** Agents that are due now, outside of the schedule. */
  #outOfTurn: SimulatedAgent[] = []
  #turn = 0
  #begun = 0
  #busy = 0
  #timer: NodeJS.Timeout | undefined

  constructor(
    fleet: Fleet,
    {
      concurrency,
      onReply,
    }: { concurrency: number; onReply: (agent: SimulatedAgent, reply: unknown) => void },
  ) {
    this.#fleet = fleet
    this.#concurrency = concurrency
    this.#onReply = onReply
  }

  begin(): void {
    this.#begun = performance.now()
    this.#fleet.signal.addEventListener('abort', () => clearTimeout(this.#timer), { once: true })
    this.#pump()
  }

  beatNow(agent: SimulatedAgent): void {
    if (agent.state !== 'up' || agent.isTrying) return
    agent.overdueSince ??= performance.now()
    this.#outOfTurn.push(agent)
    agent.isTrying = true
    this.#pump()
  }

  #pump(): void {
    clearTimeout(this.#timer)
    if (this.#fleet.signal.aborted) return
    while (this.#busy < this.#concurrency) {
      const agent = this.#next()
      if (agent === undefined) break
      this.#busy += 1
      this.#beat(agent).finally(() => {
        this.#busy -= 1
        this.#pump()
      })
    }
    if (this.#busy < this.#concurrency) {
      this.#timer = setTimeout(() => this.#pump(), Math.max(1, this.#dueAt - performance.now()))
    }
  }

  get #dueAt(): number {
    const { intervalMs, count } = this.#fleet.plan
    return this.#begun + (this.#turn * intervalMs) / count
  }

  #next(): SimulatedAgent | undefined {
    const early = this.#outOfTurn.shift()
    if (early) return early
    for (const now = performance.now(); this.#dueAt <= now; ) {
      const due = this.#dueAt
      const agent = this.#fleet.agents[this.#turn++ % this.#fleet.plan.count]
      if (agent?.state !== 'up') continue
      if (agent.overdueSince !== undefined) this.#fleet.tally.counts.missed += 1
      agent.overdueSince = due
      if (agent.isTrying) continue
      agent.isTrying = true
      return agent
    }
    return undefined
  }

  async #beat(agent: SimulatedAgent): Promise<void> {
    const { tally, wire, plan, signal } = this.#fleet
    const began = performance.now()
    const body = heartbeatOf(this.#fleet, agent)
    const reply = await wire.send('POST', `/agents/${agent.id}/heartbeat`, { token: agent.token, body })
    if (signal.aborted) return
    if (reply.status !== 200) return this.#failed(agent, reply)
    const now = performance.now()
    tally.recordHeartbeat(now - began)
    const late = now - (agent.overdueSince ?? now)
    if (late > plan.intervalMs) tally.counts.missed += 1
    else if (late > plan.intervalMs / 10) tally.counts.late += 1
    agent.overdueSince = undefined
    agent.isTrying = false
    agent.failures = 0
    agent.beats += 1
    this.#onReply(agent, reply.body)
  }

  #failed(agent: SimulatedAgent, { reason, status, retryAfterMs }: Reply): void {
    const { tally, plan, signal } = this.#fleet
    tally.recordFailure(reason)
    agent.failures += 1
    if (status === 401 || status === 403 || status === 404) {
      tally.counts.refused += 1
      agent.isTrying = false
      // A temporary refusal, such as a quarantine, is retried at the next turn.
      if (status === 403 && !reason.endsWith('device_decommissioned')) agent.overdueSince = undefined
      else goOffline(agent, 'gone')
      return
    }
    const wait = backoffMs(agent.failures, retryAfterMs, seededRandom(plan.seed, agent.n, 'retry'))
    pause(wait, signal).then((goesOn) => {
      agent.isTrying = false
      if (goesOn) this.beatNow(agent)
    })
  }
}

function heartbeatOf({ plan }: Fleet, { n, version, autoUpdate, beats }: SimulatedAgent): Heartbeat {
  const { hostname, osVersion, osBuild, deviceRole } = machineOf(plan, n)
  return {
    status: 'ok',
    agentVersion: version,
    metrics: metricsOf(plan.seed, n, beats),
    hostname,
    osVersion,
    osBuild,
    deviceRole,
    autoUpdate,
    role: 'agent',
    isVirtual: true,
    virtualizationPlatform: 'kvm',
    isHeadless: deviceRole === 'server',
    uptime: 86_400 + beats * Math.round(plan.intervalMs / 1000),
    pendingReboot: false,
    ...(deviceRole === 'workstation' && { lastUser: `user-${n}` }),
  }
}
