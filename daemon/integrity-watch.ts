import type { Logger } from 'pino'
import type { Counter, Registry } from 'prom-client'
import type { Clock } from '../src/core/time.ts'
import type { Integrity, Storage } from '../src/storage/open.ts'
import { addCounter, addGauge } from './metrics.ts'

/** A longer check is aborted, and repeated when the next one is due. */
const maxMs = 3_600_000

/** Runs integrity checks, and reports their results to the log and metrics. */
export class IntegrityWatch {
  readonly #storage: Pick<Storage, 'checkIntegrity'>
  readonly #clock: Clock
  readonly #log: Pick<Logger, 'error' | 'warn'>
  readonly #maxMs: number
  readonly #checks: Counter<'verdict'>
  #lastAt = 0
  #isDamaged = false

  constructor(
    storage: Pick<Storage, 'checkIntegrity'>,
    clock: Clock,
    log: Pick<Logger, 'error' | 'warn'>,
    metrics: Registry,
    deadlineMs = maxMs,
  ) {
    this.#storage = storage
    this.#clock = clock
    this.#log = log
    this.#maxMs = deadlineMs
    const checks = {
      name: 'svc_database_integrity_checks_total',
      help: 'Integrity checks of the database, by what they found; unknown: those that came to no end.',
    }
    this.#checks = addCounter(metrics, checks, 'verdict', ['sound', 'damaged', 'unknown'])
    const last = {
      name: 'svc_database_integrity_last_check_timestamp_seconds',
      help: 'When an integrity check last came to its end.',
    }
    addGauge(metrics, last, () => this.#lastAt)
  }

  /** @throws when the check did not finish, which says nothing about the database; returns silently when `ending` aborts it. */
  async look(ending: AbortSignal): Promise<void> {
    let seen: Integrity
    try {
      const deadline = AbortSignal.timeout(this.#maxMs)
      seen = await this.#storage.checkIntegrity(AbortSignal.any([ending, deadline]))
    } catch (error) {
      if (ending.aborted) return
      this.#checks.inc({ verdict: 'unknown' })
      throw error
    }
    this.#checks.inc({ verdict: seen.verdict })
    if (seen.verdict === 'unknown') {
      const { reason } = seen
      this.#log.warn({ reason }, 'damage of the database cannot be detected before it is read')
      return
    }
    this.#lastAt = Date.parse(this.#clock()) / 1000
    if (seen.verdict === 'damaged') {
      this.#isDamaged = true
      this.#log.error({ found: seen.found }, 'the database is damaged: restore it from a backup')
    }
  }

  /**
   * Stays true until the process ends, like damage found by a request: on Postgres the counts can be reset, which repairs
   * nothing.
   */
  get isDamaged(): boolean {
    return this.#isDamaged
  }
}
