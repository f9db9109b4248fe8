import { newId } from '../../src/core/new-id.ts'
import type { AgentChannels, Outcome, Wait } from '../../src/live/ports.ts'
import type { LocalAgentChannels } from '../../src/live/replica-relay.ts'
import { closings } from '../../src/live/wire/contract.ts'
import type { AgentConnection } from './agent-connection.ts'

/** How long a late result is still accepted. */
const lateMs = 300_000
/** Most sent queries that are remembered for late results; the oldest are dropped. */
const maxAsked = 10_000

/** The connections of this process, one for each agent. */
export class AgentConnections implements LocalAgentChannels {
  readonly #byDevice = new Map<string, AgentConnection>()
  readonly #onNudge: (link: AgentConnection) => void
  /** The device of each sent command, oldest first. */
  readonly #asked = new Map<string, { deviceId: string; until: number }>()

  constructor(onNudge: (link: AgentConnection) => void) {
    this.#onNudge = onNudge
  }

  get size(): number {
    return this.#byDevice.size
  }

  [Symbol.iterator](): Iterator<AgentConnection> {
    return this.#byDevice.values()
  }

  /** Number of remembered queries. */
  get asked(): number {
    return this.#asked.size
  }

  has(deviceId: string): boolean {
    return this.#byDevice.has(deviceId)
  }

  /** The newer connection of an agent replaces the older one. */
  add(link: AgentConnection): void {
    const { deviceId } = link.agent
    this.#byDevice.get(deviceId)?.end(closings.superseded)
    this.#byDevice.set(deviceId, link)
  }

  /** Whether it was the connection of its agent until now. */
  remove(link: AgentConnection): boolean {
    const { deviceId } = link.agent
    return this.#byDevice.get(deviceId) === link && this.#byDevice.delete(deviceId)
  }

  /** Another process has a newer connection of the agent. */
  supersede(deviceId: string, linkId: string): void {
    const link = this.#byDevice.get(deviceId)
    if (link?.id !== linkId) return
    this.#byDevice.delete(deviceId)
    link.end(closings.superseded)
  }

  nudge(deviceId: string): void {
    const link = this.#byDevice.get(deviceId)
    if (link) this.#onNudge(link)
  }

  async request(deviceId: string, { type, payload }: Parameters<AgentChannels['request']>[1], wait: Wait) {
    const link = this.#byDevice.get(deviceId)
    if (!link) return { status: 'unreachable' } as const
    const id = newId()
    this.#remember(id, deviceId)
    return link.ask({ id, type, payload }, wait)
  }

  /** Whether this device was sent the command, even long ago or over an earlier connection. */
  settle(link: AgentConnection, commandId: string, outcome: Outcome): boolean {
    if (link.settle(commandId, outcome)) return true
    return this.#asked.get(commandId)?.deviceId === link.agent.deviceId
  }

  #remember(id: string, deviceId: string): void {
    const now = performance.now()
    for (const [old, { until }] of this.#asked) {
      if (until > now && this.#asked.size < maxAsked) break
      this.#asked.delete(old)
    }
    this.#asked.set(id, { deviceId, until: now + lateMs })
  }
}
