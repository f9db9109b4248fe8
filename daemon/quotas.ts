import type { Counter, Registry } from 'prom-client'
import { Problem } from '../src/core/errors.ts'
import type { QuotaName, QuotaOwner, Quotas } from '../src/core/quotas.ts'
import type { Instant } from '../src/core/time.ts'
import type { Db } from '../src/storage/open.ts'
import { checkQuota } from '../src/storage/quotas.ts'
import { addCounter } from './metrics.ts'

/** Owners whose room is known. */
const maxKnown = 10_000
/**
 * The share of the room of an owner that this process uses without counting again: counting thousands of records before
 * each creation would halve their rate. As many processes together exceed no quota by it.
 */
const share = 1 / 20

type Uncounted = Map<string, number>
type Creation = { name: QuotaName; owner: QuotaOwner; now: Instant }

const placeOf = (name: QuotaName, { orgId, partnerId }: QuotaOwner): string =>
  `${name} ${orgId ?? partnerId ?? ''}`

/** Checks the quotas of this service, and counts refusals. */
export class QuotaCheck {
  readonly #quotas: Quotas
  readonly #refusals: Counter<'quota'>
  /** How many records may be created before they are counted again, by quota and owner. */
  readonly #uncounted: Uncounted = new Map()
  /**
   * The same within a transaction of several changes: it counts what it has deleted itself, and gives back no room when it is
   * rolled back.
   */
  readonly #within = new WeakMap<Db, Uncounted>()

  constructor(quotas: Quotas, metrics: Registry) {
    this.#quotas = quotas
    const refusals = {
      name: 'svc_quota_refusals_total',
      help: 'Requests refused because their tenant has as many records of a kind as its quota allows.',
    }
    this.#refusals = addCounter(metrics, refusals, 'quota', Object.keys(quotas))
  }

  /** Returns the ids of records that were deleted to make room. @throws quota_exceeded */
  check(db: Db, name: QuotaName, owner: QuotaOwner, now: Instant): Promise<string[]> {
    return this.#check(this.#uncounted, db, { name, owner, now })
  }

  /** The same for one of several changes of a transaction. */
  checkWithin(tx: Db, name: QuotaName, owner: QuotaOwner, now: Instant): Promise<string[]> {
    const uncounted = this.#within.get(tx) ?? new Map()
    this.#within.set(tx, uncounted)
    // What this transaction makes is in no room that was counted before.
    this.#uncounted.delete(placeOf(name, owner))
    return this.#check(uncounted, tx, { name, owner, now })
  }

  async #check(all: Uncounted, db: Db, { name, owner, now }: Creation): Promise<string[]> {
    const place = placeOf(name, owner)
    const uncounted = all.get(place) ?? 0
    if (uncounted >= 1) {
      all.set(place, uncounted - 1)
      return []
    }
    try {
      const { room, displaced } = await checkQuota(db, name, { owner, max: this.#quotas[name], now })
      if (all.size >= maxKnown) all.clear()
      all.set(place, Math.floor(room * share))
      return displaced
    } catch (error) {
      if (error instanceof Problem && error.code === 'quota_exceeded') this.#refusals.inc({ quota: name })
      throw error
    }
  }
}
