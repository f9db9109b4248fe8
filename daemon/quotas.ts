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

/** Checks the quotas of this service, and counts refusals. */
export class QuotaCheck {
  readonly #quotas: Quotas
  readonly #refusals: Counter<'quota'>
  /** How many records may be created before they are counted again, by quota and owner. */
  readonly #uncounted = new Map<string, number>()

  constructor(quotas: Quotas, metrics: Registry) {
    this.#quotas = quotas
    const refusals = {
      name: 'svc_quota_refusals_total',
      help: 'Requests refused because their tenant has as many records of a kind as its quota allows.',
    }
    this.#refusals = addCounter(metrics, refusals, 'quota', Object.keys(quotas))
  }

  /** Returns the ids of records that were deleted to make room. @throws quota_exceeded */
  async check(db: Db, name: QuotaName, owner: QuotaOwner, now: Instant): Promise<string[]> {
    const place = `${name} ${owner.orgId ?? owner.partnerId ?? ''}`
    const uncounted = this.#uncounted.get(place) ?? 0
    if (uncounted >= 1) {
      this.#uncounted.set(place, uncounted - 1)
      return []
    }
    try {
      const { room, displaced } = await checkQuota(db, name, { owner, max: this.#quotas[name], now })
      if (this.#uncounted.size >= maxKnown) this.#uncounted.clear()
      this.#uncounted.set(place, Math.floor(room * share))
      return displaced
    } catch (error) {
      if (error instanceof Problem && error.code === 'quota_exceeded') this.#refusals.inc({ quota: name })
      throw error
    }
  }
}
