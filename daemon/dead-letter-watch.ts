import type { Logger } from 'pino'
import { addSeconds, type Clock } from '../src/core/time.ts'
import {
  countDeadLetters,
  type DeadLetterSource,
  deadLetterSources,
  findLastDeadLetterId,
  listDeadLettersAfter,
  listLostDeadLetters,
} from '../src/storage/dead-letters.ts'
import type { Storage } from '../src/storage/open.ts'
import type { Metric } from './metrics.ts'

/** How long readiness tells of one. */
const toldSeconds = 86_400

/** Tells those who watch the service of what could not be written where it belongs, by whichever process. */
export class DeadLetterWatch {
  readonly #storage: Storage
  readonly #clock: Clock
  readonly #log: Pick<Logger, 'error'>
  #told: number | undefined
  /** How many of each source had been lost when that was last told. */
  #lost: Map<string, number> | undefined

  constructor(storage: Storage, clock: Clock, log: Pick<Logger, 'error'>) {
    this.#storage = storage
    this.#clock = clock
    this.#log = log
  }

  /** Into the log, what came since the last time. */
  async tell(): Promise<void> {
    const { read } = this.#storage
    this.#told ??= await findLastDeadLetterId(read)
    for (const { id: setAside, ...one } of await listDeadLettersAfter(read, this.#told)) {
      this.#told = setAside
      this.#log.error({ setAside, ...one }, 'what could not be written was set aside: see svc dead-letters')
    }
    await this.#tellLost()
  }

  async #tellLost(): Promise<void> {
    const lost = await listLostDeadLetters(this.#storage.read)
    const before = this.#lost
    this.#lost = new Map(lost.map(({ source, count }) => [source, count]))
    for (const { source, count, reason } of before ? lost : []) {
      const more = count - (before?.get(source) ?? 0)
      if (more > 0) {
        this.#log.error(
          { source, lost: more, reason },
          'what could not be written was lost, for as much is set aside as may be: see svc dead-letters',
        )
      }
    }
  }

  /** For /health/ready, which is public: how many of a day; undefined when there are none. */
  async check(): Promise<string | undefined> {
    const { read } = this.#storage
    const since = addSeconds(this.#clock(), -toldSeconds)
    const lost = (await listLostDeadLetters(read)).filter(({ last_at }) => last_at >= since)
    const said = [
      ...(await countDeadLetters(read, since)).map(({ source, count }) => `${source}: ${count}`),
      ...lost.map(({ source, count }) => `${source} lost: ${count}`),
    ]
    return said.join(', ') || undefined
  }

  async metrics(): Promise<Metric[]> {
    const { read } = this.#storage
    const kept = new Map((await countDeadLetters(read, '')).map((one) => [one.source, one]))
    const lost = new Map((await listLostDeadLetters(read)).map((one) => [one.source, one.count]))
    const valuesOf = (count: (source: DeadLetterSource) => number | undefined) =>
      deadLetterSources.map((source) => ({ labels: { source }, value: count(source) ?? 0 }))
    return [
      {
        name: 'svc_set_aside_rows',
        kind: 'gauge',
        help: 'What could not be written where it belongs and is kept as a dead letter, by where it belongs.',
        values: valuesOf((source) => kept.get(source)?.count),
      },
      {
        name: 'svc_set_aside_bytes',
        kind: 'gauge',
        help: 'Bytes of dead letters, by where they belong.',
        values: valuesOf((source) => kept.get(source)?.bytes),
      },
      {
        name: 'svc_set_aside_lost_total',
        kind: 'counter',
        help: 'What could not be written where it belongs and was not kept either, because there were too many dead letters.',
        values: valuesOf((source) => lost.get(source)),
      },
    ]
  }
}
