import type { Logger } from 'pino'
import { Counter, Gauge, Registry } from 'prom-client'
import { addSeconds, type Clock } from '../src/core/time.ts'
import {
  countDeadLetters,
  deadLetterSources,
  findLastDeadLetterId,
  listDeadLettersAfter,
  listLostDeadLetters,
} from '../src/storage/dead-letters.ts'
import type { Storage } from '../src/storage/open.ts'
import type { StoredMetrics } from './metrics.ts'

/** How long readiness reports a dead letter. */
const reportedSeconds = 86_400

/** Reports dead letters of all processes to the log, readiness and metrics. */
export class DeadLetterWatch {
  readonly #storage: Storage
  readonly #clock: Clock
  readonly #log: Pick<Logger, 'error'>
  readonly stored: StoredMetrics
  #lastReported: number | undefined
  /** The number of lost rows of each source at the last report. */
  #lost: Map<string, number> | undefined

  constructor(storage: Storage, clock: Clock, log: Pick<Logger, 'error'>) {
    this.#storage = storage
    this.#clock = clock
    this.#log = log
    const registry = new Registry()
    const gauges = gaugesOf(registry)
    this.stored = { registry, refresh: () => this.#refresh(gauges) }
  }

  /** Logs new dead letters since the last time. */
  async logNew(): Promise<void> {
    const { read } = this.#storage
    this.#lastReported ??= await findLastDeadLetterId(read)
    for (const { id: setAside, ...one } of await listDeadLettersAfter(read, this.#lastReported)) {
      this.#lastReported = setAside
      this.#log.error(
        { setAside, ...one },
        'a row that could not be written is a dead letter now: see svc dead-letters',
      )
    }
    await this.#logLost()
  }

  async #logLost(): Promise<void> {
    const lost = await listLostDeadLetters(this.#storage.read)
    const before = this.#lost
    this.#lost = new Map(lost.map(({ source, count }) => [source, count]))
    for (const { source, count, reason } of before ? lost : []) {
      const more = count - (before?.get(source) ?? 0)
      if (more > 0) {
        this.#log.error(
          { source, lost: more, reason },
          'rows that could not be written were lost, because there are too many dead letters: see svc dead-letters',
        )
      }
    }
  }

  /** For /health/ready, which is public: the number of a day; undefined when there are none. */
  async check(): Promise<string | undefined> {
    const { read } = this.#storage
    const since = addSeconds(this.#clock(), -reportedSeconds)
    const lost = (await listLostDeadLetters(read)).filter(({ last_at }) => last_at >= since)
    const said = [
      ...(await countDeadLetters(read, since)).map(({ source, count }) => `${source}: ${count}`),
      ...lost.map(({ source, count }) => `${source} lost: ${count}`),
    ]
    return said.join(', ') || undefined
  }

  async #refresh({ rows, bytes, lost }: ReturnType<typeof gaugesOf>): Promise<void> {
    const { read } = this.#storage
    const stored = new Map((await countDeadLetters(read, '')).map((one) => [one.source, one]))
    const counts = new Map((await listLostDeadLetters(read)).map((one) => [one.source, one.count]))
    lost.reset()
    for (const source of deadLetterSources) {
      rows.set({ source }, stored.get(source)?.count ?? 0)
      bytes.set({ source }, stored.get(source)?.bytes ?? 0)
      lost.inc({ source }, counts.get(source) ?? 0)
    }
  }
}

const gaugesOf = (registry: Registry) => {
  const common = { labelNames: ['source'], registers: [registry] }
  return {
    rows: new Gauge({
      name: 'svc_set_aside_rows',
      help: 'What could not be written where it belongs and is kept as a dead letter, by where it belongs.',
      ...common,
    }),
    bytes: new Gauge({
      name: 'svc_set_aside_bytes',
      help: 'Bytes of dead letters, by where they belong.',
      ...common,
    }),
    lost: new Counter({
      name: 'svc_set_aside_lost_total',
      help: 'Rows that were lost, because there were too many dead letters to keep them.',
      ...common,
    }),
  }
}
