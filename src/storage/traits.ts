import type { Dialect, StorageTraits } from './db.ts'

export const dialectTraits: Readonly<Record<Dialect, StorageTraits>> = {
  sqlite: {
    systemName: 'sqlite',
    serialWrites: true,
    singleProcess: true,
    batchSize: 100,
    acceptsNul: true,
    hasOwnFiles: true,
  },
  postgres: {
    systemName: 'postgresql',
    serialWrites: false,
    singleProcess: false,
    batchSize: 200,
    acceptsNul: false,
    hasOwnFiles: false,
  },
}

/** Those of a database that is not open yet. */
export const traitsAt = ({ databaseUrl }: { databaseUrl?: string | undefined }): StorageTraits =>
  dialectTraits[databaseUrl === undefined ? 'sqlite' : 'postgres']
