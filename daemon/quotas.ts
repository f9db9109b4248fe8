import type { Counter, Registry } from 'prom-client'
import { Problem } from '../src/core/errors.ts'
import type { QuotaName, QuotaOwner, Quotas } from '../src/core/quotas.ts'
import type { Instant } from '../src/core/time.ts'
import type { Db } from '../src/storage/open.ts'
import { checkQuota } from '../src/storage/quotas.ts'
import { addCounter } from './metrics.ts'

/** Checks the quotas of this service, and counts refusals. */
export class QuotaCheck {
  readonly #quotas: Quotas
  readonly #refusals: Counter<'quota'>

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
    try {
      return await checkQuota(db, name, { owner, most: this.#quotas[name], now })
    } catch (error) {
      if (error instanceof Problem && error.code === 'quota_exceeded') this.#refusals.inc({ quota: name })
      throw error
    }
  }
}
