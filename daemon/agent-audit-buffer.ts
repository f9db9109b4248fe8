import { Counter, type Registry } from 'prom-client'
import { recordAudit } from '../src/audit/outbox.ts'
import type { DraftEntry } from '../src/audit/rules.ts'
import { newId } from '../src/core/new-id.ts'
import type { Instant } from '../src/core/time.ts'
import { drain } from '../src/storage/bisect-writes.ts'
import type { WriteGate } from '../src/storage/copy/write-gate.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import type { Limiter } from './limiter.ts'

/** Similar entries of one device that were not written one by one. */
type Gathered = { last: DraftEntry; count: number; since: Instant }

/** Most kinds gathered concurrently, of all devices: further entries are written immediately. */
const maxEntries = 10_000
/** Most entries in one transaction, so that it stays short. */
const batch = 100

/**
 * Gathers repetitive audit entries of agents that change nothing people decide: log uploads
 * and refusals. An audit log only grows. Up to AGENT_AUDIT entries of a device are written immediately, further ones as
 * one entry of each kind at intervals: all are counted, and no device fills the disk.
 */
export class AgentAuditBuffer {
  readonly #limiter: Limiter
  readonly #gate: Pick<WriteGate, 'closure'>
  readonly #gathered = new Map<string, Gathered>()
  readonly #gatheredTotal: Counter

  constructor(limiter: Limiter, metrics: Registry, gate: Pick<WriteGate, 'closure'>) {
    this.#limiter = limiter
    this.#gate = gate
    this.#gatheredTotal = new Counter({
      name: 'svc_agent_audit_gathered_total',
      help: 'Audit entries of agents that were merged into a later one, beyond the rate limit AGENT_AUDIT.',
      registers: [metrics],
    })
  }

  get size(): number {
    return this.#gathered.size
  }

  /** Whether an entry is to be written now; otherwise it is gathered. */
  isDue(draft: DraftEntry): boolean {
    // What is gathered once writes are refused would be confirmed, and not go along when the database moves.
    if (this.#gate.closure !== undefined) return true
    if (this.#limiter.tryTake('AGENT_AUDIT', draft.actorId)) return true
    if (!this.#add({ last: draft, count: 1, since: draft.timestamp })) return true
    this.#gatheredTotal.inc()
    return false
  }

  /** False when there is no room for it. */
  #add({ last, count, since }: Gathered): boolean {
    const { actorId, action, result, details } = last
    const key = JSON.stringify([actorId, action, result, result === 'success' ? null : details.code])
    const before = this.#gathered.get(key)
    if (!before && this.#gathered.size >= maxEntries) return false
    this.#gathered.set(key, {
      last: before && before.last.timestamp > last.timestamp ? before.last : last,
      count: count + (before?.count ?? 0),
      since: before && before.since < since ? before.since : since,
    })
    return true
  }

  /** Writes gathered entries. Those that fail stay. @throws the failure */
  async write(storage: Pick<Storage, 'write'>, now: Instant): Promise<void> {
    const all = [...this.#gathered.values()]
    this.#gathered.clear()
    const write = async (tx: Db, some: readonly Gathered[]) => {
      for (const one of some) await recordAudit(tx, summaryOf(one, now))
    }
    await drain(storage, all, batch, write, (some) => {
      for (const one of some) this.#add(one)
    })
  }
}

/** The last entry, with the number of gathered ones and their start. */
const summaryOf = ({ last, count, since }: Gathered, now: Instant): DraftEntry => ({
  ...last,
  id: newId(),
  timestamp: now,
  details: { ...last.details, gathered: { count, since, until: last.timestamp } },
})
