import { existsSync } from 'node:fs'
import type { PostgresSettings, ReadQuerySettings, ReadStorage, Storage } from './db.ts'
import { noObserver, type StorageObserver } from './observer.ts'

export type { Db, Integrity, PostgresSettings, ReadStorage, Storage, WriteOptions } from './db.ts'

export type StorageOptions = {
  /** `postgres://…`; without it, SQLite in the data directory. */
  databaseUrl?: string | undefined
  /** A connection pooler before it, which may give each transaction another session. */
  poolerUrl?: string | undefined
  dataDir: string
  postgres?: Partial<PostgresSettings>
  /** On SQLite: refuses a data directory that another serving process uses. */
  alone?: boolean
  /** Threads for heavy reads on SQLite. */
  readerThreads?: number
  readQueries?: ReadQuerySettings
  observer?: StorageObserver
}

const defaultPostgres: PostgresSettings = { poolSize: 10, statementMs: 30_000, waitMs: 0 }

const defaultReadQueries: ReadQuerySettings = { timeoutMs: 10_000, atOnce: 6 }

/** Opens the database without touching its tables (migrate.ts does). Loads only the driver it needs. */
export async function openStorage(options: StorageOptions): Promise<Storage> {
  const { databaseUrl, poolerUrl, dataDir, postgres, alone = false, readerThreads = 2 } = options
  const { readQueries = defaultReadQueries, observer = noObserver } = options
  if (databaseUrl) {
    const settings = { ...defaultPostgres, ...postgres }
    return (await import('./postgres/open.ts')).openPostgres(
      { databaseUrl, poolerUrl },
      settings,
      readQueries,
      observer,
    )
  }
  return (await import('./sqlite/open.ts')).openSqlite(dataDir, {
    alone,
    readerThreads,
    readQueries,
    observer,
  })
}

/** Whether there is a database, before it is opened. */
export async function databaseExists({ databaseUrl, dataDir }: StorageOptions): Promise<boolean> {
  if (databaseUrl !== undefined) return true
  return existsSync((await import('./sqlite/file.ts')).sqliteFile(dataDir))
}

/** Opens a database that exists, and never changes it. */
export async function openReadOnly({
  databaseUrl,
  dataDir,
}: Pick<StorageOptions, 'databaseUrl' | 'dataDir'>): Promise<ReadStorage> {
  if (databaseUrl === undefined)
    return (await import('./sqlite/open-read-only.ts')).openSqliteReadOnly(dataDir)
  return openStorage({ databaseUrl, dataDir, postgres: { poolSize: 2 } })
}
