import type { Logger } from 'pino'
import type { Counter, Registry } from 'prom-client'
import { classifyDatabaseError, type DatabaseFailure } from '../src/storage/database-errors.ts'
import type { Storage } from '../src/storage/open.ts'
import { addCounter } from './metrics.ts'

const sayAgainMs = 60_000
/** Time limit of readiness for an answer of the database. */
const maxMs = 4000

const troubles: readonly DatabaseFailure[] = [
  'unreachable',
  'denying access',
  'too slow',
  'read-only',
  'moved',
  'full',
  'failing disk',
  'damaged',
]

const toLabel = (trouble: DatabaseFailure): string => trouble.replace(' ', '_')

/** What is wrong with the database: for the log once a minute, for readiness, and for those who watch the service. */
export class DatabaseWatch {
  readonly #storage: Storage
  readonly #log: Logger
  readonly #counts = new Map<DatabaseFailure, number>()
  readonly #failed: Counter<'reason'>
  readonly #saidUntil = new Map<DatabaseFailure, number>()

  constructor(storage: Storage, log: Logger, metrics: Registry) {
    this.#storage = storage
    this.#log = log
    const failed = {
      name: 'svc_database_failures_total',
      help: 'Statements that failed because the database could not be used, by the reason.',
    }
    this.#failed = addCounter(metrics, failed, 'reason', troubles.map(toLabel))
  }

  /** Accepts any error; those of an unusable database are counted, and logged once a minute. */
  note(error: unknown): void {
    const trouble = classifyDatabaseError(error)
    // What is done on purpose is no failure.
    if (trouble === undefined || trouble === 'in maintenance') return
    const failures = (this.#counts.get(trouble) ?? 0) + 1
    this.#counts.set(trouble, failures)
    this.#failed.inc({ reason: toLabel(trouble) })
    const now = performance.now()
    if (now < (this.#saidUntil.get(trouble) ?? 0)) return
    this.#saidUntil.set(trouble, now + sayAgainMs)
    const { code: sqlState, message } = error as { code?: string; message?: string }
    this.#log.error({ trouble, sqlState, reason: message, failures }, `the database is ${trouble}`)
  }

  /** For `/health/ready`: why the database cannot be used; undefined when it can. */
  async fault(): Promise<string | undefined> {
    const { promise: late, resolve } = Promise.withResolvers<'late'>()
    const timer = setTimeout(resolve, maxMs, 'late')
    try {
      const outcome = await Promise.race([this.#storage.check(), late])
      return outcome === 'late' ? `no answer within ${maxMs / 1000} s` : undefined
    } catch (error) {
      this.note(error)
      return classifyDatabaseError(error) ?? 'unavailable'
    } finally {
      clearTimeout(timer)
    }
  }

  /** Whether a statement found damaged data. */
  get isDamaged(): boolean {
    return this.#counts.has('damaged')
  }
}
