import { Pool } from 'undici'
import type { NewRollout, RolloutProgress } from '../../../src/agents/rollouts/contract.ts'
import { reconcileRollout } from '../../../src/agents/rollouts/jobs.ts'
import type { UpdateStatus } from '../../../src/agents/upgrades/contract.ts'
import { api } from '../../../src/api.ts'
import { type Client, createClient, type Transport } from '../../../src/core/client.ts'
import type { Clock } from '../../../src/core/time.ts'
import { checkLiveness } from '../../../src/devices/jobs.ts'
import type { Storage } from '../../../src/storage/open.ts'

/** How an agent fares that is offered the version of a rollout. */
export type Fate =
  | 'well'
  /** It is never seen again. */
  | 'crash'
  /** It ignores the offer. */
  | 'silent'
  /** It comes up with the version after the gate. */
  | 'slow'
  /** It comes up with another version. */
  | 'wrong version'
  | 'refuses'
  | 'rolls back'
  /** It comes up, and stops during its soak. */
  | 'dies later'

export type Machine = { agentId: string; deviceId: string; client: Client }

/** Where the fleet is simulated: a service on a test clock, with its background jobs run by hand. */
export type Ground = {
  storage: Storage
  clock: Clock & { forward(seconds: number): void }
  system: Client
  offlineAfterSeconds: number
}

/** Seconds between two heartbeats of an agent; a part of the fleet reports in each part of it. */
const interval = 300
const parts = 5

const wrongVersion = '0.0.1'

/**
 * Typed clients over a few shared connections: separate connections for a whole fleet would take too long.
 */
export function clientsFor(
  url: string,
  connections: number,
): { of(token: string): Client; close(): Promise<void> } {
  const pool = new Pool(url, { connections })
  const transport: Transport = async ({ method, url: address, ...request }) => {
    const { pathname, search } = new URL(address)
    const reply = await pool.request({ path: pathname + search, method: method as 'GET', ...request })
    const headers = reply.headers as Record<string, string | undefined>
    return { status: reply.statusCode, headers, body: reply.body }
  }
  const of = (token: string) =>
    createClient({
      url,
      retries: 0,
      transport,
      credentials: { headers: async () => ({ authorization: `Bearer ${token}` }) },
    })
  return { of, close: () => pool.destroy() }
}

class FakeAgent {
  readonly machine: Machine
  runs: string
  isDead = false
  /** Seconds of the simulation until which it is offline. */
  awayUntil = 0
  #update: { version: string; since: number } | undefined
  #cameUp = 0

  constructor(machine: Machine, runs: string) {
    this.machine = machine
    this.runs = runs
  }

  /** One heartbeat, and the reaction to its reply. */
  async beat(fleet: Fleet, at: number): Promise<void> {
    if (this.isDead || at < this.awayUntil) return
    await this.#goOn(fleet, at)
    if (this.isDead) return
    if (this.runs === fleet.version) fleet.touched.add(this)
    const { agentId: id, client } = this.machine
    const body = { status: 'ok' as const, agentVersion: this.runs }
    const { upgradeTo } = await client.call(api.agents.heartbeat, { params: { id }, body })
    fleet.requests += 1
    if (upgradeTo === null || upgradeTo === this.runs) return
    if (upgradeTo === fleet.version) fleet.touched.add(this)
    await this.#take(fleet, upgradeTo, at)
  }

  async #take(fleet: Fleet, version: string, at: number): Promise<void> {
    if (this.#update?.version === version) return
    const fate = fleet.fateOf(this, version)
    if (fate === 'silent') return
    if (fate === 'refuses')
      return this.#say(fleet, { targetVersion: version, state: 'refused', reason: 'checksum' })
    this.#update = { version, since: at }
    await this.#say(fleet, { targetVersion: version, state: 'updating' })
    if (fate === 'crash') this.isDead = true
  }

  async #goOn(fleet: Fleet, at: number): Promise<void> {
    const update = this.#update
    if (!update) {
      const dies = fleet.fateOf(this, this.runs) === 'dies later' && at - this.#cameUp >= interval
      this.isDead = dies && this.runs === fleet.version
      return
    }
    const fate = fleet.fateOf(this, update.version)
    if (fate === 'slow' && at - update.since < fleet.gateSeconds + interval) return
    this.#update = undefined
    if (fate === 'rolls back') {
      const reason = 'exit 1'
      return this.#say(fleet, { targetVersion: update.version, state: 'rolled_back', reason })
    }
    this.runs = fate === 'wrong version' ? wrongVersion : update.version
    this.#cameUp = at
  }

  async #say(fleet: Fleet, body: UpdateStatus): Promise<void> {
    const { agentId: id, client } = this.machine
    await client.call(api.agentUpdates.status, { params: { id }, body })
    fleet.requests += 1
  }
}

export type Outcome = {
  status: RolloutProgress
  /** Devices that were ever offered the version, or ran it; and those of them outside of the first wave. */
  touched: number
  outside: number
  firstWave: number
  minutes: number
  requests: number
}

/** Agents that implement only the protocol. */
export class Fleet {
  readonly #ground: Ground
  readonly #parallel: number
  readonly agents: FakeAgent[]
  version = ''
  gateSeconds = 0
  requests = 0
  touched = new Set<FakeAgent>()
  fate: (n: number) => Fate = () => 'well'
  #seconds = 0
  #fates = new Map<FakeAgent, Fate>()

  constructor(ground: Ground, machines: readonly Machine[], runs: string, parallel = 16) {
    this.#ground = ground
    this.#parallel = parallel
    this.agents = machines.map((machine) => new FakeAgent(machine, runs))
  }

  /** Every other version works. */
  fateOf(agent: FakeAgent, version: string): Fate {
    return version === this.version ? (this.#fates.get(agent) ?? 'well') : 'well'
  }

  /** From now on the agents fare like this with the version of the rollout, by their numbers. */
  fare(fate: (n: number) => Fate): void {
    this.#fates = new Map(this.agents.map((agent, n) => [agent, fate(n)]))
  }

  /** Runs the fleet for this long, interval by interval. */
  async live(minutes = interval / 60): Promise<void> {
    for (let n = 0; n < (minutes * 60 * parts) / interval; n++) {
      this.#ground.clock.forward(interval / parts)
      this.#seconds += interval / parts
      const turn = (this.#seconds * parts) / interval
      await this.#each(this.agents.filter((_, at) => at % parts === turn % parts))
      await this.#round()
    }
  }

  async #each(agents: FakeAgent[]): Promise<void> {
    const left = [...agents]
    const work = async () => {
      for (let one = left.pop(); one; one = left.pop()) await one.beat(this, this.#seconds)
    }
    await Promise.all(Array.from({ length: this.#parallel }, work))
  }

  async #round(): Promise<void> {
    const { storage, clock, offlineAfterSeconds } = this.#ground
    await checkLiveness(storage, { offlineAfterSeconds }, clock())
    await reconcileRollout({ storage, clock, offlineAfterSeconds })
  }

  /** Starts a rollout and waits until it is prepared. */
  async start(body: NewRollout): Promise<string> {
    this.version = body.version
    this.gateSeconds = body.gateMinutes * 60
    this.touched = new Set()
    this.requests = 0
    const { id } = await this.#ground.system.call(api.agentRollouts.start, { body })
    // The service may be preparing it already.
    while ((await this.status(id)).status === 'preparing') await this.#round()
    return id
  }

  status(id: string): Promise<RolloutProgress> {
    return this.#ground.system.call(api.agentRollouts.show, { params: { id } })
  }

  /** Runs until the rollout is at rest, or until the time is over. */
  async settle(id: string, maxMinutes = 24 * 60): Promise<Outcome> {
    const began = this.#seconds
    let status = await this.status(id)
    while (status.status === 'running' && this.#seconds - began < maxMinutes * 60) {
      await this.live()
      status = await this.status(id)
    }
    const first = new Set(await this.firstWave(id))
    return {
      status,
      touched: this.touched.size,
      outside: [...this.touched].filter(({ machine }) => !first.has(machine.deviceId)).length,
      firstWave: first.size,
      minutes: (this.#seconds - began) / 60,
      requests: this.requests,
    }
  }

  /** The ids of the devices in its first wave. */
  async firstWave(id: string): Promise<string[]> {
    const ids: string[] = []
    for (let cursor: string | undefined; ; ) {
      const query = { wave: 1, limit: 100, ...(cursor !== undefined && { cursor }) }
      const { data, pagination } = await this.#ground.system.call(api.agentRollouts.devices, {
        params: { id },
        query,
      })
      ids.push(...data.map((one) => one.id))
      if (pagination.nextCursor === null) return ids
      cursor = pagination.nextCursor
    }
  }

  /** How many running agents have the version. */
  get onVersion(): number {
    return this.agents.filter(({ isDead, runs }) => !isDead && runs === this.version).length
  }
}
