import { migrations } from '../migrations/index.ts'
import { type MigrationState, migrate, migrationStatus } from '../src/storage/migrate.ts'
import { breakMigrationLock } from '../src/storage/migration-lock.ts'
import { openStorage, type Storage } from '../src/storage/open.ts'
import { databaseOf } from './config.ts'

/* What `svc db` does: directly on the database that `svc serve` would use, also while it runs. */

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

/** The names of the migrations it applied. */
export const migrateNow = (flags: Flags): Promise<string[]> =>
  withStorage(flags, (storage) => migrate(storage, migrations))

/** How many connections held the migration lock and were ended. */
export const unlockNow = (flags: Flags): Promise<number> => withStorage(flags, breakMigrationLock)
