import pg from 'pg'
import { statementName } from '../query/prepared.ts'

/** A table was altered since the statement was planned: a newer release migrates while this one still runs. */
export function isStalePlan(error: unknown): boolean {
  const { code, message } = (error ?? {}) as { code?: string; message?: string }
  return code === '0A000' && message !== undefined && message.includes('cached plan')
}

/** How old a plan may become: what was planned for a table that was small reads all of it, also when it has grown. */
const planAgeMs = 10_000

type Done = (error: unknown, result: unknown) => void

/** pg makes one of an object as well, which it copies property by property first: much slower than what follows. */
class NamedQuery extends pg.Query {
  readonly name: string

  constructor(name: string, text: string, values: unknown[], done: Done) {
    super(text, values, done)
    this.name = name
  }
}

/** Names what is run again and again, so that Postgres parses it once for each connection, and plans it seldom. */
export class PostgresConnection extends pg.Client {
  /** Names of before are worth nothing any more. */
  #generation = 0
  #plannedAt = performance.now()
  #unanswered = 0
  /** Since when the database owes an answer; of no meaning where none is unanswered. */
  #owingSince = 0

  // biome-ignore lint/suspicious/noExplicitAny: pg has a dozen forms of it, of which Kysely uses one
  override query(...args: any[]): any {
    const [text, values, ...more] = args
    const name = typeof text === 'string' && more.length === 0 ? statementName(text) : undefined
    if (name !== undefined) return this.#run(name, text, values)
    const result = (super.query as (...all: unknown[]) => unknown).apply(this, args)
    if (result instanceof Promise) {
      this.#asked()
      result.then(this.#answered, this.#answered)
    }
    return result
  }

  /** Milliseconds for which the database has answered nothing, though it was asked. */
  silentMs(now: number): number {
    return this.#unanswered === 0 ? 0 : now - this.#owingSince
  }

  /** Ends it without a word to the other side, which may not hear it: what is under way fails at once. */
  cut(reason: string): void {
    const { stream } = (this as unknown as { connection: { stream: { destroy(error: Error): void } } })
      .connection
    stream.destroy(new Error(`Connection terminated: ${reason}`))
  }

  /** What found its plan stale is run again, unless that has ended a transaction: then all of it is. */
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

  #ask(name: string, text: string, values: unknown[]): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers()
    const done: Done = (error, result) => {
      this.#answered()
      if (error) reject(error)
      else resolve(result)
    }
    this.#asked()
    super.query(new NamedQuery(`${name}_${this.#generation}`, text, values, done))
    return promise
  }

  #asked(): void {
    if (this.#unanswered === 0) this.#owingSince = performance.now()
    this.#unanswered += 1
  }

  readonly #answered = (): void => {
    this.#unanswered -= 1
    if (this.#unanswered > 0) this.#owingSince = performance.now()
  }

  #refreshPlans(): void {
    const now = performance.now()
    if (now - this.#plannedAt < planAgeMs) return
    this.#plannedAt = now
    // What this fails of, the query behind it fails of as well, and says so.
    super.query('discard plans').catch(() => {})
  }
}
