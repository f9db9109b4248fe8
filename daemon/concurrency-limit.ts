import { Counter, type Registry } from 'prom-client'
import { addCount, countOf } from '../src/core/counts.ts'
import { Problem } from '../src/core/errors.ts'
import { addGauge } from './metrics.ts'

const retrySeconds = 1
/** Share of the requests in progress that one tenant may have. */
const shareOfTenant = 0.25
/** Most requests in progress of one device, which sends one at a time and waits for commands in another. */
const maxOfDevice = 16

/**
 * Bounds the number of requests in progress. Everything that waits for the database, a disk or an agent belongs to a
 * request, so no queue grows beyond this limit, however many requests one connection sends before it closes.
 */
export class ConcurrencyLimit {
  readonly #max: number
  /** Requests in progress, by tenant. */
  readonly #byTenant = new Map<string, number>()
  /** Requests in progress, by device. */
  readonly #byDevice = new Map<string, number>()
  #busy = 0
  readonly #refused: Counter

  constructor(max: number, metrics: Registry) {
    this.#max = max
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

  /**
   * Runs `work`, unless too many requests are in progress: in all, of this tenant or of this device.
   * @throws unavailable
   */
  async run<T>(work: () => Promise<T>, { tenant, deviceId }: Requester = {}): Promise<T> {
    const isFull =
      this.#busy >= this.#max ||
      (tenant !== undefined && countOf(this.#byTenant, tenant) >= this.#max * shareOfTenant) ||
      (deviceId !== undefined && countOf(this.#byDevice, deviceId) >= maxOfDevice)
    if (isFull) {
      this.#refused.inc()
      throw new Problem('unavailable', 'The service has too many requests under way', {
        retryAfter: retrySeconds,
      })
    }
    const count = (change: 1 | -1) => {
      this.#busy += change
      if (tenant !== undefined) addCount(this.#byTenant, tenant, change)
      if (deviceId !== undefined) addCount(this.#byDevice, deviceId, change)
    }
    count(1)
    try {
      return await work()
    } finally {
      count(-1)
    }
  }
}

/** The tenant and the device that a request comes from, if known. */
type Requester = { tenant?: string | undefined; deviceId?: string | undefined }
