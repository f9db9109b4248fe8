import pg from 'pg'
import { noObserver, type StorageObserver } from '../observer.ts'
import { statementName } from '../query/prepared.ts'
import { currentTrace } from '../trace.ts'

/** Whether a table was altered since the statement was planned: a newer release migrates while this one still runs. */
export function isStalePlan(error: unknown): boolean {
  const { code, message } = (error ?? {}) as { code?: string; message?: string }
  return code === '0A000' && message !== undefined && message.includes('cached plan')
}

/** Maximum age of a plan: one made while a table was small scans the whole table even after it has grown. */
const planAgeMs = 10_000

type Done = (error: unknown, result: unknown) => void

/** pg also makes a query from a config object, but copies it property by property first, which is much slower. */
class NamedQuery extends pg.Query {
  readonly name: string

  constructor(name: string, text: string, values: unknown[], done: Done) {
    super(text, values, done)
    this.name = name
  }
}

/** Whether a query is a statement that needs a transaction and does not begin one. */
const isAlone = ([text, , ...more]: unknown[]): boolean =>
  typeof text === 'string' && more.length === 0 && !/^(begin|rollback|commit)\b/.test(text)

/** Names statements that run repeatedly, so Postgres parses each once per connection and plans it rarely. */
export class PostgresConnection extends pg.Client {
  observer: Pick<StorageObserver, 'ran'> = noObserver
  /**
   * What begins the transaction of each statement that is in none. Set behind a pooler that gives each transaction another
   * session: such statements have no names either, which belong to a session.
   */
  beginsEach: string | undefined
  /** Part of each statement's name: a new generation abandons all earlier names. */
  #generation = 0
  #plannedAt = performance.now()
  #unanswered = 0
  /** The first unanswered query or the last answer, whichever is later; meaningless while no query is unanswered. */
  #waitingSince = 0

  // biome-ignore lint/suspicious/noExplicitAny: pg has a dozen forms of it, of which Kysely uses one
  override query(...args: any[]): any {
    const [text, values, ...more] = args
    if (this.beginsEach !== undefined && this.getTransactionStatus() === 'I' && isAlone(args))
      return this.#inTransaction(this.beginsEach, text, values)
    const name =
      this.beginsEach === undefined && typeof text === 'string' && more.length === 0
        ? statementName(text)
        : undefined
    if (name !== undefined) return this.#run(name, text, values)
    const result = (super.query as (...all: unknown[]) => unknown).apply(this, args)
    if (result instanceof Promise) {
      const answered = this.#asked(String(text))
      result.then(answered, answered)
    }
    return result
  }

  /** Milliseconds without any answer while a query waits for one. */
  silentMs(now: number): number {
    return this.#unanswered === 0 ? 0 : now - this.#waitingSince
  }

  /** Closes the connection without notifying the server, which may not hear it: queries under way fail at once. */
  cut(reason: string): void {
    const { stream } = (this as unknown as { connection: { stream: { destroy(error: Error): void } } })
      .connection
    stream.destroy(new Error(`Connection terminated: ${reason}`))
  }

  /**
   * Reruns a query whose plan was stale, unless the error has aborted a transaction: then the whole transaction is
   * rerun.
   */
  async #run(name: string, text: string, values: unknown[]): Promise<unknown> {
    this.#refreshPlans()
    try {
      return await this.#ask(name, text, values)
    } catch (error) {
      if (!isStalePlan(error)) throw error
      this.#generation += 1
      if (this.getTransactionStatus() !== 'I') throw error
      return this.#ask(name, text, values)
    }
  }

  async #inTransaction(begin: string, text: string, values: unknown[] | undefined): Promise<unknown> {
    await this.query(begin)
    try {
      const result = await this.query(text, values)
      await this.query('commit')
      return result
    } catch (error) {
      // On a lost connection nothing is left to roll back, and the reason is what matters.
      await this.query('rollback').catch(() => {})
      throw error
    }
  }

  #ask(name: string, text: string, values: unknown[]): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers()
    const answered = this.#asked(text)
    const done: Done = (error, result) => {
      answered()
      if (error) reject(error)
      else resolve(result)
    }
    super.query(new NamedQuery(`${name}_${this.#generation}`, text, values, done))
    return promise
  }

  /** Returns what to call once it is answered. */
  #asked(text: string): () => void {
    // The answer arrives with the connection, on nobody's behalf.
    const trace = currentTrace()
    const since = performance.now()
    if (this.#unanswered === 0) this.#waitingSince = since
    this.#unanswered += 1
    return () => {
      const now = performance.now()
      this.#unanswered -= 1
      if (this.#unanswered > 0) this.#waitingSince = now
      this.observer.ran(text, now - since, trace)
    }
  }

  #refreshPlans(): void {
    const now = performance.now()
    if (now - this.#plannedAt < planAgeMs) return
    this.#plannedAt = now
    // Whatever fails this also fails the query behind it, which reports it.
    super.query('discard plans').catch(() => {})
  }
}
