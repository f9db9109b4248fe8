import type { Kysely } from 'kysely'
import type { TableName, Tables } from './schema/tables.ts'

/** A place to run queries: plain reads, heavy reads, or the transaction of one write. */
export type Db = Kysely<Tables>

export type Dialect = 'sqlite' | 'postgres'

/** What people and programs ask, who may ask for much. */
export type ReadQuerySettings = {
  /** Milliseconds one statement may take. */
  timeoutMs: number
  /** So many may run at once: on Postgres connections besides the pool, on SQLite threads. */
  atOnce: number
}

export type PostgresSettings = {
  /** Connections. */
  poolSize: number
  /** Milliseconds a statement may take; 0: as long as it takes, for migrations. */
  statementMs: number
  /** Milliseconds a database that refuses the first connection is waited for. */
  waitMs: number
  /** Told why, while it is waited for. */
  onRefused?(reason: string): void
}

/** Messages between the processes that serve one database. What nobody hears is lost. */
export type Notifications = {
  /** `heard` gets each message to the channel; `missed` says that some may have been lost. Gives what ends it. */
  listen(channel: string, on: { heard(message: string): void; missed(): void }): Promise<() => Promise<void>>
  /** Whether some process listens: known to the database by itself, also of one that has died. */
  isHeard(channel: string): Promise<boolean>
  /** Goes out when the transaction does; at most 8000 bytes. */
  send(tx: Db, channel: string, message: string): Promise<void>
}

/** What a look at what is stored has found. */
export type Integrity =
  | { verdict: 'sound' }
  | { verdict: 'damaged'; found: string[] }
  /** Nobody can know here. */
  | { verdict: 'unknown'; reason: string }

export type Storage = {
  dialect: Dialect
  /** Plain reads: they see what is committed and nothing else. Transactions belong to `write`. */
  read: Db
  /** Reads that may take long. On SQLite they run in threads, so the event loop never waits for them. */
  heavy: Db
  /**
   * Reads whose cost callers decide, apart from all others: one that takes longer than it may is ended, and fails as
   * `too slow` (database-errors.ts). Asked through `call.ask`, which bounds how many there are.
   */
  questions: Db
  /**
   * Runs `work` in one transaction and resolves when it is durable: what was answered survives a crash.
   * A failing `work` changes nothing. It must be short, must wait for nothing but the queries of its `tx`,
   * may not call `write` itself, and may run again after a deadlock, so it has no effects of its own.
   * After a failed statement it may not go on: Postgres has given up its transaction by then.
   * `unsynced` may be lost with the power (not with the process) and wakes nobody: telemetry, and what can be
   * done again from what is kept.
   */
  write<T>(work: (tx: Db) => Promise<T>, options?: { unsynced?: boolean }): Promise<T>
  /**
   * Called after synced commits, at once, in this process; it must be cheap. After those to other tables only where
   * that cannot be told.
   */
  onCommit(listener: () => void, tables?: readonly TableName[]): void
  /**
   * Changes with every commit that may decide about callers, whoever made it: who they were found to be under one
   * version they are while the version holds. As of this turn of the event loop. undefined on Postgres, where only
   * asking the database again tells.
   */
  version(): number | undefined
  /** undefined on SQLite, where there is one process. */
  signals: Notifications | undefined
  /** Readiness: throws when the database answers no question, or takes no change. */
  check(): Promise<void>
  /**
   * Whether the pages that are stored are those that were written, also of what nobody reads: on SQLite all of them are read,
   * by a process of its own that `signal` ends; on Postgres it is what the server has found wrong when it read them.
   * @throws when it came to no end, which says nothing of the pages
   */
  checkIntegrity(signal: AbortSignal): Promise<Integrity>
  /** Finishes what is queued, then closes. Safe to call twice. */
  close(): Promise<void>
}
