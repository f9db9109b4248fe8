import { Counter, type Registry } from 'prom-client'
import { emitDeferred } from '../src/agents/heartbeats.ts'
import type { Instant } from '../src/core/time.ts'
import { drain } from '../src/storage/bisect-writes.ts'
import type { WriteGate } from '../src/storage/copy/write-gate.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import type { Limiter } from './limiter.ts'

/** Most devices with waiting changes: those of others are sent immediately. */
const maxDevices = 100_000
/** Most entries in one transaction, so that it stays short. */
const batch = 100

/**
 * Changes that an agent reports about its device are sent to webhooks immediately up to AGENT_EVENTS: values may alternate with
 * each heartbeat. Further changes are sent at intervals, with the state of that time.
 */
export class AgentEventBuffer {
  readonly #limiter: Limiter
  readonly #gate: Pick<WriteGate, 'closure'>
  /** By device: the columns that changed since they were last sent. */
  readonly #waiting = new Map<string, Set<string>>()
  readonly #gatheredTotal: Counter

  constructor(limiter: Limiter, metrics: Registry, gate: Pick<WriteGate, 'closure'>) {
    this.#limiter = limiter
    this.#gate = gate
    this.#gatheredTotal = new Counter({
      name: 'svc_agent_events_gathered_total',
      help: 'Changes of devices that were merged into a later event, beyond the rate limit AGENT_EVENTS.',
      registers: [metrics],
    })
  }

  get size(): number {
    return this.#waiting.size
  }

  emitsNow(deviceId: string, columns: readonly string[]): boolean {
    // As in AgentAuditBuffer: what waits would not go along when the database moves.
    if (this.#gate.closure !== undefined) return true
    if (this.#limiter.tryTake('AGENT_EVENTS', deviceId)) return true
    if (!this.#wait(deviceId, columns)) return true
    this.#gatheredTotal.inc()
    return false
  }

  /** False when there is no room for it. */
  #wait(deviceId: string, columns: Iterable<string>): boolean {
    const waiting = this.#waiting.get(deviceId)
    if (!waiting && this.#waiting.size >= maxDevices) return false
    this.#waiting.set(deviceId, new Set([...(waiting ?? []), ...columns]))
    return true
  }

  /** Sends waiting changes. Those that fail keep waiting. @throws the failure */
  async write(storage: Pick<Storage, 'write'>, now: Instant): Promise<void> {
    const all = [...this.#waiting]
    this.#waiting.clear()
    const write = async (tx: Db, some: readonly (typeof all)[number][]) => {
      for (const [deviceId, columns] of some) await emitDeferred(tx, deviceId, columns, now)
    }
    await drain(storage, all, batch, write, (some) => {
      for (const one of some) this.#wait(...one)
    })
  }
}
