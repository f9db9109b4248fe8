import type { Logger } from 'pino'
import type { Counter, Registry } from 'prom-client'
import type { Excess } from '../src/logs/quota.ts'
import { HourlyThrottle } from './hourly-throttle.ts'
import { addCounter, addGauge } from './metrics.ts'

/** Counts log entries that this process refused or deleted beyond the quota, and warns once an hour per device. */
export class LogWatch {
  readonly #log: Logger
  readonly #excess: Counter<'what'>
  readonly #hourly = new HourlyThrottle()
  #bytes = 0

  constructor(log: Logger, metrics: Registry) {
    this.#log = log
    const bytes = {
      name: 'svc_log_bytes',
      help: 'Bytes of logs of devices that are kept, as they were last added up.',
    }
    addGauge(metrics, bytes, () => this.#bytes)
    const excess = {
      name: 'svc_log_entries_excess_total',
      help: 'Entries of logs that this process refused, or deleted to make room, because a device had too many.',
    }
    this.#excess = addCounter(metrics, excess, 'what', ['refused', 'deleted'])
  }

  add({ what, entries, deviceId, orgId }: Excess): void {
    this.#excess.inc({ what }, entries)
    if (!this.#hourly.isDue(deviceId)) return
    this.#log.warn(
      { deviceId, orgId, [what]: entries },
      'the logs of a device exceed its limit: some are refused, and its oldest are deleted',
    )
  }

  /** Stores the total bytes of all devices. */
  hold({ bytes }: { bytes: number }): void {
    this.#bytes = bytes
  }
}
