import type { Logger } from 'pino'
import { migrations } from '../migrations/index.ts'
import { SetupError } from '../src/core/errors.ts'
import { assertNoUnfinishedRestore } from '../src/storage/backup/restore-mark.ts'
import { migrate, pendingMigrations, unknownMigrations } from '../src/storage/migrate.ts'
import { describeWait, type MigrationWait } from '../src/storage/migration-wait.ts'
import { openStorage, type Storage, type StorageOptions } from '../src/storage/open.ts'
import { version } from '../src/version.ts'
import type { Config } from './config.ts'

/**
 * Applies what is missing before the service starts.
 * @throws SetupError when it may not, cannot, or is too old for the database
 */
export async function prepareSchema(
  storage: Storage,
  place: StorageOptions,
  { autoMigrate, migrationLockMs }: Pick<Config, 'autoMigrate' | 'migrationLockMs'>,
  log: Logger,
): Promise<void> {
  await assertNoUnfinishedRestore(storage)
  const pending = await pendingMigrations(storage, migrations, { version })
  const unknown = await unknownMigrations(storage, migrations)
  if (unknown.length > 0)
    log.info(
      { migrations: unknown },
      'a later version has applied migrations, which this version can work with',
    )
  if (pending.length === 0) return
  if (!autoMigrate) {
    throw new SetupError(
      `AUTO_MIGRATE is off and migrations are pending: ${pending.join(', ')}. Run: svc db migrate`,
    )
  }
  // In separate connections without a time limit: a migration of many rows may take long.
  const patient = await openStorage({ ...place, postgres: { ...place.postgres, statementMs: 0 } })
  const options = {
    version,
    locks: { totalMs: migrationLockMs },
    onWait: (wait: MigrationWait) => log.warn(wait, describeWait(wait)),
  }
  await migrate(patient, migrations, options).finally(() => patient.close())
  // A restore that began in between has marked the database before it let the migrations go on.
  await assertNoUnfinishedRestore(storage)
}
