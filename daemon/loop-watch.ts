import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { Clock } from '../src/core/time.ts'

/** What the background loops of this process do, by the name that they have in the log. */
export class LoopWatch {
  readonly #clock: Clock
  readonly #runs: Histogram<'loop'>
  readonly #failures: Counter<'loop'>
  readonly #lastSuccess: Gauge<'loop'>
  readonly #interval: Gauge<'loop'>

  constructor(clock: Clock, metrics: Registry) {
    this.#clock = clock
    const common = { labelNames: ['loop'] as const, registers: [metrics] }
    this.#runs = new Histogram({
      name: 'svc_loop_duration_seconds',
      help: 'Duration of the runs of each background loop, failed ones included.',
      buckets: [0.01, 0.1, 0.5, 1, 5, 30, 120, 600],
      ...common,
    })
    this.#failures = new Counter({
      name: 'svc_loop_failures_total',
      help: 'Runs of each background loop that failed.',
      ...common,
    })
    this.#lastSuccess = new Gauge({
      name: 'svc_loop_last_success_timestamp_seconds',
      help: 'When each background loop last ended a run without a failure; before the first one, when it was started.',
      ...common,
    })
    this.#interval = new Gauge({
      name: 'svc_loop_interval_seconds',
      help: 'Longest interval between two runs of a background loop.',
      ...common,
    })
  }

  started(loop: string, everyMs: number): void {
    this.#interval.set({ loop }, everyMs / 1000)
    // A series that appears with the first run has lost that run to whoever asks for an increase.
    this.#runs.zero({ loop })
    this.#failures.inc({ loop }, 0)
    this.#succeeded(loop)
  }

  ended(loop: string, milliseconds: number, isSuccess: boolean): void {
    this.#runs.observe({ loop }, milliseconds / 1000)
    if (isSuccess) this.#succeeded(loop)
    else this.#failures.inc({ loop })
  }

  #succeeded(loop: string): void {
    this.#lastSuccess.set({ loop }, Date.parse(this.#clock()) / 1000)
  }
}
