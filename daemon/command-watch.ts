import type { Logger } from 'pino'
import { Counter, type Registry } from 'prom-client'
import type { Excess } from '../src/logs/quota.ts'
import { HourlyThrottle } from './hourly-throttle.ts'
import { addGauge } from './metrics.ts'

/** Counts the outputs of commands that this process let go because there were too many, and says so once an hour of a device. */
export class CommandWatch {
  readonly #log: Pick<Logger, 'warn'>
  readonly #hourly = new HourlyThrottle()
  readonly #dropped: Counter
  #bytes = 0

  constructor(log: Pick<Logger, 'warn'>, metrics: Registry) {
    this.#log = log
    const bytes = {
      name: 'svc_command_result_bytes',
      help: 'Bytes of what came of commands that are kept, as they were last added up.',
    }
    addGauge(metrics, bytes, () => this.#bytes)
    this.#dropped = new Counter({
      name: 'svc_command_outputs_dropped_total',
      help: 'Outputs of commands that this process let go to make room for later ones.',
      registers: [metrics],
    })
  }

  add({ entries: dropped, deviceId, orgId }: Excess): void {
    this.#dropped.inc(dropped)
    if (!this.#hourly.isDue(deviceId)) return
    this.#log.warn(
      { deviceId, orgId, dropped },
      'more came of the commands of a device than is kept of it: its oldest outputs are let go',
    )
  }

  /** So much is kept, of all devices. */
  hold({ bytes }: { bytes: number }): void {
    this.#bytes = bytes
  }
}
