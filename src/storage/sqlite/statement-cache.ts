import type { Database, Statement } from 'better-sqlite3'

/** `reader`: it returns rows. `changes`: the table whose rows it may change. */
export type CachedStatement = { statement: Statement; reader: boolean; changes: string | undefined }

/** For a statement that changes something, when its beginning does not name the table. */
export const anyTable = '*'

/**
 * Prepared statements by their SQL. Two generations instead of a true LRU: a hit costs one map look-up,
 * and a statement unused for a whole generation is dropped.
 */
export class StatementCache {
  #young = new Map<string, CachedStatement>()
  #old = new Map<string, CachedStatement>()
  readonly #database: Database
  readonly #generation: number

  constructor(database: Database, generation = 256) {
    this.#database = database
    this.#generation = generation
  }

  get(sql: string): CachedStatement {
    return this.#young.get(sql) ?? this.#promote(sql)
  }

  #promote(sql: string): CachedStatement {
    const prepared = this.#old.get(sql) ?? this.#prepare(sql)
    if (this.#young.size >= this.#generation) {
      this.#old = this.#young
      this.#young = new Map()
    }
    this.#young.set(sql, prepared)
    return prepared
  }

  #prepare(sql: string): CachedStatement {
    const statement = this.#database.prepare(sql)
    return { statement, reader: statement.reader, changes: statement.readonly ? undefined : tableOf(sql) }
  }
}

/** Statements begin as Kysely writes them. Triggers write only to indexes of the same table. */
const tableOf = (sql: string): string | undefined =>
  sql === 'begin immediate'
    ? undefined
    : (/^(?:insert into|insert or fail into|update|delete from) "(\w+)"/.exec(sql)?.[1] ?? anyTable)
