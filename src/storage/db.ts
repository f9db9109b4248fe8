import type { Kysely } from 'kysely'
import type { PoolName, PoolUsage } from './observer.ts'
import type { TableName, Tables } from './schema/tables.ts'

/** Runs queries: plain reads, heavy reads, or the transaction of one write. */
export type Db = Kysely<Tables>

export type Dialect = 'sqlite' | 'postgres'

/** Limits for queries whose cost callers decide. */
export type ReadQuerySettings = {
  /** Milliseconds one statement may take. */
  timeoutMs: number
  /** Concurrent queries: extra connections on Postgres, threads on SQLite. */
  atOnce: number
}

export type PostgresSettings = {
  /** Connections. */
  poolSize: number
  /** Milliseconds a statement may take; 0: no limit, for migrations. */
  statementMs: number
  /** Milliseconds to wait for a database that refuses the first connection. */
  waitMs: number
  /** Called with the reason while waiting. */
  onRefused?(reason: string): void
}

/** Messages between the processes that serve one database. A message without a listener is lost. */
export type Notifications = {
  /**
   * `onMessage` gets each message to the channel; `onReconnect` reports that some may have been lost. Returns a function that
   * stops listening.
   */
  listen(
    channel: string,
    on: { onMessage(text: string): void; onReconnect(): void },
  ): Promise<() => Promise<void>>
  /** Whether any process listens. The database itself knows, so a process that died does not count. */
  hasListener(channel: string): Promise<boolean>
  /** Sent when the transaction commits; fewer than 8000 bytes. */
  send(tx: Db, channel: string, message: string): Promise<void>
}

/** The result of an integrity check. */
export type Integrity =
  | { verdict: 'sound' }
  | { verdict: 'damaged'; found: string[] }
  /** The database cannot be checked. */
  | { verdict: 'unknown'; reason: string }

/** Properties that callers may adapt to, instead of checking which database it is. */
export type StorageTraits = {
  /** As traces name it: `db.system.name` of the semantic conventions. */
  systemName: string
  /** Writes run one at a time, in the thread that serves requests: concurrent ones gain nothing. */
  serialWrites: boolean
  /** No other process serves this database. */
  singleProcess: boolean
  /** Rows that a background job changes in one transaction, so that requests do not wait for it. */
  batchSize: number
  /** Stores texts with a NUL. */
  acceptsNul: boolean
  /** It consists of files in the data directory, and not of those of a server. */
  hasOwnFiles: boolean
}

export type WriteOptions = { unsynced?: boolean; snapshot?: boolean; lockMs?: number }

/** For tools that examine a database and must not change it. */
export type ReadStorage = Pick<
  Storage,
  'dialect' | 'traits' | 'read' | 'heavy' | 'checkIntegrity' | 'sizes' | 'close'
>

export type Storage = {
  /** For src/storage and migrations; everything else uses `traits`. */
  dialect: Dialect
  traits: StorageTraits
  /** Plain reads of committed data. Transactions belong to `write`. */
  read: Db
  /** Reads that may take long. On SQLite they run in threads, so the event loop never waits for them. */
  heavy: Db
  /**
   * Reads whose cost callers decide, kept apart from all others: one that exceeds its time limit is ended and fails
   * as `too slow` (database-errors.ts). Handlers use `call.readQuery`, which bounds how many run.
   */
  readQueries: Db
  /**
   * Runs `work` in one transaction and resolves when it is durable: a reply that was sent survives a crash. A failing
   * `work` changes nothing. `work` must be short, must wait only for the queries of its `tx`, must not call `write`
   * itself, and may run again after a deadlock, so it has no other effects. After a failed statement it must not go
   * on: Postgres has aborted the transaction by then. `unsynced` may be lost in a power failure (not when the process
   * dies) and calls no listener: for telemetry, and for what can be redone from stored data. `snapshot`: all of `work` sees
   * the database as it was at its beginning, and runs again where somebody changes a row meanwhile that it changes: for a
   * transaction that decides by what it has read long before. `lockMs`: milliseconds to wait
   * for each lock, instead of the usual five seconds; of Postgres only, for what can be done later.
   */
  write<T>(work: (tx: Db) => Promise<T>, options?: WriteOptions): Promise<T>
  /**
   * Called synchronously after synced commits in this process; it must be cheap. With `tables`, only after commits to
   * those, or where the tables cannot be determined.
   */
  onCommit(listener: () => void, tables?: readonly TableName[]): void
  /**
   * Changes with every commit, by any process, that may change what a caller is allowed to do: a caller resolved
   * under one version need not be resolved again while it holds. As of this turn of the event loop. undefined on
   * Postgres, where only another query shows a change.
   */
  version(): number | undefined
  /** undefined on SQLite, where there is one process. */
  signals: Notifications | undefined
  /** Readiness: throws when the database answers no query or accepts no change. */
  check(): Promise<void>
  /**
   * Whether the stored pages are those that were written, including pages that no query reads. On SQLite a process of
   * its own, which `signal` ends, reads all of them; on Postgres the result is what the server found when it read them.
   * @throws when the check did not finish, which says nothing about the pages
   */
  checkIntegrity(signal: AbortSignal): Promise<Integrity>
  /** How busy it is, at this moment. */
  usage(): Partial<Record<PoolName, PoolUsage>>
  /** Bytes of the database; `log`: of the write-ahead log of SQLite, a file beside it. */
  sizes(): Promise<{ data: number; log?: number }>
  /** Returns room of deleted rows to the disk, in short steps. Postgres does that by itself, in its autovacuum. */
  giveSpaceBack(): Promise<void>
  /** Finishes what is queued, then closes. Safe to call twice. */
  close(): Promise<void>
}
