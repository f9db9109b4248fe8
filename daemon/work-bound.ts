import { Problem } from '../src/core/errors.ts'
import type { Metric } from './metrics.ts'

const retrySeconds = 1

/**
 * Bounds how many requests are worked on at once. All that waits for the database, a disk or an agent waits for one of them, so
 * no queue behind them grows beyond it, however many requests come over one connection and hang up.
 */
export class ConcurrencyLimit {
  readonly #most: number
  #busy = 0
  #refused = 0

  constructor(most: number) {
    this.#most = most
  }

  /** Does it, unless too much is being done. @throws unavailable */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#busy >= this.#most) {
      this.#refused += 1
      throw new Problem('unavailable', 'The service has too many requests under way', {
        retryAfter: retrySeconds,
      })
    }
    this.#busy += 1
    try {
      return await work()
    } finally {
      this.#busy -= 1
    }
  }

  metrics(): Metric[] {
    return [
      {
        name: 'svc_requests_in_progress',
        kind: 'gauge',
        help: 'Requests that this process is working on.',
        values: [{ value: this.#busy }],
      },
      {
        name: 'svc_requests_refused_total',
        kind: 'counter',
        help: 'Requests that were refused because too many were worked on.',
        values: [{ value: this.#refused }],
      },
    ]
  }
}
