import type { Trace } from './trace.ts'

/** The connections (Postgres) or threads (SQLite) that a kind of query shares. On SQLite all writes share one. */
export type PoolName = 'main' | 'writes' | 'heavy' | 'questions'

/** A pool at this moment: how many it has at most, how many are in use, and how many callers wait for one. */
export type PoolUsage = { limit: number; inUse: number; waiting: number }

/** Watches what queries wait for and how long they take. Called for each of them, so it must be cheap. */
export type StorageObserver = {
  /** A caller got a connection, a thread or its turn to write. */
  waited(pool: PoolName, milliseconds: number): void
  /** A statement ended, well or not. Its text has no values. `trace`: that of the caller. */
  ran(sql: string, milliseconds: number, trace: Trace | undefined): void
}

export const noObserver: StorageObserver = { waited() {}, ran() {} }
