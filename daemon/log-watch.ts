import type { Logger } from 'pino'
import type { Excess } from '../src/logs/quota.ts'
import { HourlyThrottle } from './hourly-throttle.ts'
import type { Metric } from './metrics.ts'

/** Counts what this process refused or deleted of logs of which there are too many, and says so once an hour of a device. */
export class LogWatch {
  readonly #log: Logger
  readonly #counts = { refused: 0, deleted: 0 }
  readonly #hourly = new HourlyThrottle()
  #bytes = 0

  constructor(log: Logger) {
    this.#log = log
  }

  add({ what, entries, deviceId, orgId }: Excess): void {
    this.#counts[what] += entries
    if (!this.#hourly.isDue(deviceId)) return
    this.#log.warn(
      { deviceId, orgId, [what]: entries },
      'a device hands in more logs than are kept of it: some are refused, and its oldest are deleted',
    )
  }

  /** So much is kept, of all devices. */
  hold({ bytes }: { bytes: number }): void {
    this.#bytes = bytes
  }

  metrics(): Metric[] {
    return [
      {
        name: 'svc_log_bytes',
        kind: 'gauge',
        help: 'Bytes of logs of devices that are kept, as they were last added up.',
        values: [{ value: this.#bytes }],
      },
      {
        name: 'svc_log_entries_excess_total',
        kind: 'counter',
        help: 'Entries of logs that this process refused, or deleted to make room, because a device had too many.',
        values: Object.entries(this.#counts).map(([what, value]) => ({ labels: { what }, value })),
      },
    ]
  }
}
