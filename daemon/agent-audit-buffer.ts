import { Counter, type Registry } from 'prom-client'
import { recordAudit } from '../src/audit/outbox.ts'
import type { DraftEntry } from '../src/audit/rules.ts'
import { newId } from '../src/core/new-id.ts'
import type { Instant } from '../src/core/time.ts'
import { drain } from '../src/storage/bisect-writes.ts'
import type { Storage } from '../src/storage/open.ts'
import type { Limiter } from './limiter.ts'

/** Entries that are alike, of one device, and were not written one by one. */
type Gathered = { last: DraftEntry; count: number; since: Instant }

/** Most kinds of all devices that are gathered at once: what comes beyond is written as it comes. */
const most = 10_000
/** Of one write: nobody waits for longer than that. */
const batch = 100

/**
 * What agents cause in the audit log again and again although it changes nothing that people decide: logs that they hand in,
 * and refusals. An audit log only grows. So many of a device are written as they come (AGENT_AUDIT), and those beyond in
 * one for each kind, now and then: nothing of it is left out, and no device fills the disk.
 */
export class AgentAuditBuffer {
  readonly #limiter: Limiter
  readonly #gathered = new Map<string, Gathered>()
  readonly #gatheredTotal: Counter

  constructor(limiter: Limiter, metrics: Registry) {
    this.#limiter = limiter
    this.#gatheredTotal = new Counter({
      name: 'svc_agent_audit_gathered_total',
      help: 'Audit entries of agents that were not written one by one, because a device had too many: others tell of them.',
      registers: [metrics],
    })
  }

  get size(): number {
    return this.#gathered.size
  }

  /** Whether an entry is to be written now; else it is told of together with others. */
  isDue(draft: DraftEntry): boolean {
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
    if (!before && this.#gathered.size >= most) return false
    this.#gathered.set(key, {
      last: before && before.last.timestamp > last.timestamp ? before.last : last,
      count: count + (before?.count ?? 0),
      since: before && before.since < since ? before.since : since,
    })
    return true
  }

  /** Writes what was gathered. What cannot be written is kept. @throws why it cannot */
  async write(storage: Pick<Storage, 'write'>, now: Instant): Promise<void> {
    const all = [...this.#gathered.values()]
    this.#gathered.clear()
    const write = (some: readonly Gathered[]) =>
      storage.write(async (tx) => {
        for (const one of some) await recordAudit(tx, toldOf(one, now))
      })
    await drain(all, batch, write, (some) => {
      for (const one of some) this.#add(one)
    })
  }
}

/** The last of them, with how many there were since when. */
const toldOf = ({ last, count, since }: Gathered, now: Instant): DraftEntry => ({
  ...last,
  id: newId(),
  timestamp: now,
  details: { ...last.details, gathered: { count, since, until: last.timestamp } },
})
