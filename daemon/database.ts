import { migrations } from '../migrations/index.ts'
import { type MigrationState, migrate, migrationStatus } from '../src/storage/migrate.ts'
import { breakMigrationLock } from '../src/storage/migration-lock.ts'
import { openStorage, type Storage } from '../src/storage/open.ts'
import { databaseOf } from './config.ts'

/* The commands of `svc db` work directly on the database that `svc serve` would use, also while it runs. */

type Flags = { 'data-dir'?: string | undefined }

async function withStorage<T>(flags: Flags, work: (storage: Storage) => Promise<T>): Promise<T> {
  const storage = await openStorage({ ...databaseOf(flags), postgres: { statementMs: 0 } })
  try {
    return await work(storage)
  } finally {
    await storage.close()
  }
}

export const statusOf = (flags: Flags): Promise<MigrationState[]> =>
  withStorage(flags, (storage) => migrationStatus(storage, migrations))

/** Applies pending migrations and returns their names. */
export const migrateNow = (flags: Flags): Promise<string[]> =>
  withStorage(flags, (storage) => migrate(storage, migrations))

/** Closes connections that hold the migration lock and returns their number. */
export const unlockNow = (flags: Flags): Promise<number> => withStorage(flags, breakMigrationLock)
