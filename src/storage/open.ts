import type { Storage } from './db.ts'

export type { Db, Dialect, Storage } from './db.ts'

export type StorageOptions = {
  /** `postgres://…`; without it, SQLite in the data directory. */
  databaseUrl?: string
  dataDir: string
  /** Connections to Postgres. */
  poolSize?: number
  /** Threads for heavy reads on SQLite. */
  readerThreads?: number
}

/** Opens what is there; tables are the business of migrate.ts. Only the driver that is needed is loaded. */
export async function openStorage(options: StorageOptions): Promise<Storage> {
  const { databaseUrl, dataDir, poolSize = 10, readerThreads = 2 } = options
  if (databaseUrl) return (await import('./postgres.ts')).openPostgres(databaseUrl, poolSize)
  return (await import('./sqlite.ts')).openSqlite(dataDir, readerThreads)
}
