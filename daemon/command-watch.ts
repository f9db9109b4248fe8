import type { Logger } from 'pino'
import type { Excess } from '../src/logs/quota.ts'
import { HourlyThrottle } from './hourly-throttle.ts'
import type { Metric } from './metrics.ts'

/** Counts the outputs of commands that this process let go because there were too many, and says so once an hour of a device. */
export class CommandWatch {
  readonly #log: Pick<Logger, 'warn'>
  readonly #hourly = new HourlyThrottle()
  #dropped = 0
  #bytes = 0

  constructor(log: Pick<Logger, 'warn'>) {
    this.#log = log
  }

  add({ entries: dropped, deviceId, orgId }: Excess): void {
    this.#dropped += dropped
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

  metrics(): Metric[] {
    return [
      {
        name: 'svc_command_result_bytes',
        kind: 'gauge',
        help: 'Bytes of what came of commands that are kept, as they were last added up.',
        values: [{ value: this.#bytes }],
      },
      {
        name: 'svc_command_outputs_dropped_total',
        kind: 'counter',
        help: 'Outputs of commands that this process let go to make room for later ones.',
        values: [{ value: this.#dropped }],
      },
    ]
  }
}
