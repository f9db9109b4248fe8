import { Counter, type Registry } from 'prom-client'
import { addCount } from '../src/core/counts.ts'
import { Problem } from '../src/core/errors.ts'
import { addGauge } from './metrics.ts'

const retrySeconds = 1
/** What one tenant may have of them. */
const shareOfTenant = 0.25

/**
 * Bounds the number of requests in progress. Everything that waits for the database, a disk or an agent belongs to a request, so
 * no queue grows beyond this limit, however many requests one connection sends before it closes.
 */
export class ConcurrencyLimit {
  readonly #most: number
  /** Of those with one that is worked on. */
  readonly #byTenant = new Map<string, number>()
  #busy = 0
  readonly #refused: Counter

  constructor(most: number, metrics: Registry) {
    this.#most = most
    const inProgress = {
      name: 'svc_requests_in_progress',
      help: 'Requests that this process is working on.',
    }
    addGauge(metrics, inProgress, () => this.#busy)
    this.#refused = new Counter({
      name: 'svc_requests_refused_total',
      help: 'Requests that were refused because too many were worked on.',
      registers: [metrics],
    })
  }

  /** Does it, unless too much is being done, of all or of this tenant. @throws unavailable */
  async run<T>(work: () => Promise<T>, tenant?: string): Promise<T> {
    if (this.#busy >= this.#most || this.#busyOf(tenant) >= this.#most * shareOfTenant) {
      this.#refused.inc()
      throw new Problem('unavailable', 'The service has too many requests under way', {
        retryAfter: retrySeconds,
      })
    }
    this.#count(tenant, 1)
    try {
      return await work()
    } finally {
      this.#count(tenant, -1)
    }
  }

  #busyOf(tenant: string | undefined): number {
    return tenant === undefined ? 0 : (this.#byTenant.get(tenant) ?? 0)
  }

  #count(tenant: string | undefined, change: 1 | -1): void {
    this.#busy += change
    if (tenant !== undefined) addCount(this.#byTenant, tenant, change)
  }
}
