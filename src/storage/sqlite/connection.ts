import type { Database } from 'better-sqlite3'
import type { CompiledQuery, DatabaseConnection, QueryResult } from 'kysely'
import { noObserver, type StorageObserver } from '../observer.ts'
import { currentTrace } from '../trace.ts'
import { StatementCache } from './statement-cache.ts'

/** Runs compiled queries on one open SQLite database, synchronously on this thread. */
export class SqliteConnection implements DatabaseConnection {
  readonly database: Database
  /** Number of statements that may have changed something. */
  changed = 0
  /** The tables whose rows they may have changed since this was last cleared. */
  readonly touched = new Set<string>()
  readonly #statements: StatementCache
  readonly #observer: Pick<StorageObserver, 'ran'>

  constructor(database: Database, observer: Pick<StorageObserver, 'ran'> = noObserver) {
    this.database = database
    this.#observer = observer
    this.#statements = new StatementCache(database)
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    return this.run(query.sql, query.parameters) as QueryResult<R>
  }

  run(sql: string, parameters: readonly unknown[]): QueryResult<unknown> {
    for (let i = 0; i < parameters.length; i++) {
      if (parameters[i] === undefined) throw unusable(parameters, sql)
    }
    const { statement, reader, changes: table } = this.#statements.get(sql)
    const begun = performance.now()
    try {
      if (table !== undefined) {
        this.changed++
        this.touched.add(table)
      }
      if (reader) return { rows: statement.all(parameters) }
      const { changes, lastInsertRowid } = statement.run(parameters)
      return { rows: [], numAffectedRows: BigInt(changes), insertId: BigInt(lastInsertRowid) }
    } catch (error) {
      throw error instanceof TypeError ? unusable(parameters, sql, error) : error
    } finally {
      this.#observer.ran(sql, performance.now() - begun, currentTrace())
    }
  }

  /** Runs a statement to its end that returns no rows, yet pauses as often as if it did: a pragma. */
  exec(sql: string): void {
    this.changed++
    this.database.exec(sql)
  }

  /** Whether a statement may change what is stored. */
  changes(sql: string): boolean {
    return this.#statements.get(sql).changes !== undefined
  }

  // biome-ignore lint/correctness/useYield: a stream is refused, not empty
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('Streams do not work on both databases: read in pages instead')
  }
}

/**
 * Reads on this thread. A commit of another connection empties a connection's page cache, and nearly all commits are
 * the writer's: so reads use the writer's connection, and one of their own only in the middle of a write.
 */
export class ReadingConnection extends SqliteConnection {
  readonly #writer: SqliteConnection

  constructor(database: Database, writer: SqliteConnection, observer?: Pick<StorageObserver, 'ran'>) {
    super(database, observer)
    this.#writer = writer
  }

  override run(sql: string, parameters: readonly unknown[]): QueryResult<unknown> {
    if (this.#writer.database.inTransaction || this.#writer.changes(sql)) return super.run(sql, parameters)
    return this.#writer.run(sql, parameters)
  }
}

const storable = new Set(['string', 'number', 'bigint'])

/** Names the parameter by position and type, never by value: it may be a secret. */
function unusable(parameters: readonly unknown[], sql: string, cause?: TypeError): Error {
  const index = parameters.findIndex(
    (it) => it !== null && !storable.has(typeof it) && !(it instanceof Uint8Array),
  )
  if (index < 0) return cause ?? new TypeError('A parameter cannot be stored')
  const value = parameters[index]
  const type = Array.isArray(value) ? 'array' : value instanceof Date ? 'Date' : typeof value
  return new TypeError(
    `Parameter ${index + 1} is of type ${type}: only strings, numbers, bigints, bytes and null are stored. SQL: ${sql}`,
    { cause },
  )
}
