import { resolve } from 'node:path'
import { migrations } from '../migrations/index.ts'
import { formatBytes } from '../src/core/byte-size.ts'
import { SetupError } from '../src/core/errors.ts'
import { assertNoUnfinishedRestore } from '../src/storage/backup/restore-mark.ts'
import { type MigrationState, migrate, migrationStatus, unknownMigrations } from '../src/storage/migrate.ts'
import { breakMigrationLock } from '../src/storage/migration-lock.ts'
import { describeWait } from '../src/storage/migration-wait.ts'
import { databaseExists, openStorage, type Storage } from '../src/storage/open.ts'
import { type Rehearsal, rehearse } from '../src/storage/rehearse.ts'
import { traitsAt } from '../src/storage/traits.ts'
import { type Vacuumed, vacuum } from '../src/storage/vacuum.ts'
import { version } from '../src/version.ts'
import { databaseOf, migrationLockMsOf } from './config.ts'

/* The commands of `svc db` work directly on the database that `svc serve` would use, also while it runs. */

type Flags = { 'data-dir'?: string | undefined }
type Note = (text: string) => void

async function withStorage<T>(flags: Flags, work: (storage: Storage) => Promise<T>): Promise<T> {
  const storage = await openStorage({ ...databaseOf(flags), postgres: { statementMs: 0 } })
  try {
    return await work(storage)
  } finally {
    await storage.close()
  }
}

export async function statusOf(flags: Flags, note: Note): Promise<MigrationState[]> {
  const place = databaseOf(flags)
  // To open it would make it.
  if (!(await databaseExists(place))) {
    note(`There is no database in ${place.dataDir} yet`)
    return migrations.map(({ name }) => ({ name, state: 'pending', appliedAt: null }))
  }
  return withStorage(flags, async (storage) => {
    await assertNoUnfinishedRestore(storage)
    const states = await migrationStatus(storage, migrations, { version })
    await noteUnknown(storage, note)
    return states
  })
}

/** Applies pending migrations and returns their names. */
export const migrateNow = (flags: Flags, note: Note): Promise<string[]> =>
  withStorage(flags, async (storage) => {
    await assertNoUnfinishedRestore(storage)
    const locks = { totalMs: migrationLockMsOf() }
    const applied = await migrate(storage, migrations, {
      version,
      locks,
      onWait: (wait) => note(describeWait(wait)),
    })
    await noteUnknown(storage, note)
    return applied
  })

async function noteUnknown(storage: Storage, note: Note): Promise<void> {
  const names = await unknownMigrations(storage, migrations)
  if (names.length > 0)
    note(`A later version has applied ${names.join(', ')}, which svc ${version} can work with`)
}

/** Writes an SQLite file anew; `note` gets what it needs, before it begins. @throws SetupError on Postgres */
export function vacuumNow(flags: Flags, note: Note): Promise<Vacuumed> {
  return vacuum(databaseOf(flags), ({ bytes, needed }) => {
    const seconds = Math.ceil(bytes / bytesPerSecond)
    note(
      `Writing ${formatBytes(bytes)} anew: needs ${formatBytes(needed)} of free disk, and about ${seconds} s`,
    )
  })
}

/** A cautious guess: faster disks take a fraction of the time. */
const bytesPerSecond = 25 * 2 ** 20

/** Closes connections that hold the migration lock and returns their number. */
export async function unlockNow(flags: Flags): Promise<number> {
  const place = databaseOf(flags)
  return (await databaseExists(place)) ? withStorage(flags, breakMigrationLock) : 0
}

/** Applies pending migrations to a copy, which is removed afterwards. */
export async function rehearseNow(
  flags: Flags & { scratch?: string | undefined },
  on: Pick<Parameters<typeof rehearse>[2], 'signal' | 'onProgress' | 'note'>,
): Promise<Rehearsal> {
  const place = databaseOf(flags)
  if (flags.scratch !== undefined && !traitsAt(place).hasOwnFiles)
    throw new SetupError('--scratch is for SQLite: on Postgres the copy is a database of the same server.')
  const scratch = flags.scratch === undefined ? undefined : resolve(flags.scratch)
  if (await databaseExists(place)) await withStorage(flags, assertNoUnfinishedRestore)
  return rehearse(place, migrations, { scratch, version, ...on })
}
