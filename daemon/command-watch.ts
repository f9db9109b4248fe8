import type { Logger } from 'pino'
import { Counter, type Registry } from 'prom-client'
import type { Excess } from '../src/logs/quota.ts'
import { HourlyThrottle } from './hourly-throttle.ts'
import { addGauge } from './metrics.ts'

/** Counts the command outputs that this process deleted to make room, and warns once an hour per device. */
export class CommandWatch {
  readonly #log: Pick<Logger, 'warn'>
  readonly #hourly = new HourlyThrottle()
  readonly #dropped: Counter
  #bytes = 0

  constructor(log: Pick<Logger, 'warn'>, metrics: Registry) {
    this.#log = log
    const bytes = {
      name: 'svc_command_result_bytes',
      help: 'Bytes of stored command results, at the last count.',
    }
    addGauge(metrics, bytes, () => this.#bytes)
    this.#dropped = new Counter({
      name: 'svc_command_outputs_dropped_total',
      help: 'Command outputs that this process deleted to make room for later ones.',
      registers: [metrics],
    })
  }

  add({ entries: dropped, deviceId, orgId }: Excess): void {
    this.#dropped.inc(dropped)
    if (!this.#hourly.isDue(deviceId)) return
    this.#log.warn(
      { deviceId, orgId, dropped },
      'command outputs of a device exceed its limit: the oldest are deleted',
    )
  }

  /** Stores the total bytes of all devices. */
  hold({ bytes }: { bytes: number }): void {
    this.#bytes = bytes
  }
}
