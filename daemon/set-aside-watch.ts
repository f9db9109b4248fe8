import type { Logger } from 'pino'
import { type Clock, later } from '../src/core/time.ts'
import type { Storage } from '../src/storage/open.ts'
import { countSetAside, lastSetAside, setAsideAfter } from '../src/storage/set-aside.ts'
import type { Metric } from './metrics.ts'

/** How long readiness tells of one. */
const toldSeconds = 86_400

/** Tells those who watch the service of what could not be written where it belongs, by whichever process. */
export class SetAsideWatch {
  readonly #storage: Storage
  readonly #clock: Clock
  readonly #log: Pick<Logger, 'error'>
  #told: number | undefined

  constructor(storage: Storage, clock: Clock, log: Pick<Logger, 'error'>) {
    this.#storage = storage
    this.#clock = clock
    this.#log = log
  }

  /** Into the log, what came since the last time. */
  async tell(): Promise<void> {
    const { read } = this.#storage
    this.#told ??= await lastSetAside(read)
    for (const { id: setAside, ...one } of await setAsideAfter(read, this.#told)) {
      this.#told = setAside
      this.#log.error(
        { setAside, ...one },
        'what could not be written was set aside: see the table set_aside',
      )
    }
  }

  /** For /health/ready, which is public: how many of a day; undefined when there are none. */
  async check(): Promise<string | undefined> {
    const counts = await countSetAside(this.#storage.read, later(this.#clock(), -toldSeconds))
    return counts.map(({ source, count }) => `${source}: ${count}`).join(', ') || undefined
  }

  async metrics(): Promise<Metric[]> {
    const counts = new Map([
      ['audit_logs', 0],
      ['events', 0],
    ])
    for (const { source, count } of await countSetAside(this.#storage.read, '')) counts.set(source, count)
    return [
      {
        name: 'svc_set_aside_rows',
        kind: 'gauge',
        help: 'What could not be written where it belongs and is kept in the table set_aside, by where it belongs.',
        values: [...counts].map(([source, value]) => ({ labels: { source }, value })),
      },
    ]
  }
}
