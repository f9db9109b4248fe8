import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { SetupError } from '../core/errors.ts'
import { packageFile } from '../core/package-files.ts'
import { type AnyDb, type Index, type Schema, schemaFor } from './columns.ts'
import { createIndex } from './indexes.ts'
import { addToLedger, createLedger, ledgerOf, readLedger } from './migration-ledger.ts'
import { acquireMigrationLock, releaseMigrationLock } from './migration-lock.ts'
import type { MigrationWait } from './migration-wait.ts'
import { checkVersion, raiseOldestVersion } from './oldest-version.ts'
import type { Db, Storage } from './open.ts'
import { setConnectionTimeouts } from './postgres/connection-timeouts.ts'
import { buildConcurrently, inSlices, type LockLimits } from './postgres/lock-waits.ts'

/** What the file of a migration exports: `up` runs in a transaction, `indexes` are built beside the running service. */
export type MigrationFile = {
  /**
   * The oldest version of svc that may use the database from then on: for a migration that removes or tightens what an
   * older one uses.
   */
  oldestVersion?: string
} & ({ up: (schema: Schema) => Promise<void>; indexes?: never } | { indexes: readonly Index[]; up?: never })

export type Migration = MigrationFile & { name: string }

export type MigrationState = {
  name: string
  /** `changed`: the file is no longer the one that was applied. */
  state: 'applied' | 'pending' | 'changed'
  appliedAt: string | null
}

type MigratedStorage = Pick<Storage, 'dialect' | 'read' | 'write'>
type Options = {
  /** Where the sources of the migrations are. */
  folder?: URL
  now?: () => string
  /** Of this program: refused when only a later one may use the database. */
  version?: string
  onWait?: (wait: MigrationWait) => void
  /** On Postgres. */
  locks?: Partial<LockLimits>
}
type Run = {
  now: () => string
  version: string | undefined
  onWait(wait: MigrationWait): void
  locks: LockLimits
}

const defaultFolder = packageFile('migrations/')
const defaultLocks: LockLimits = { sliceMs: 2000, totalMs: 300_000 }

/**
 * Applies what is missing, in order, and returns the names. One that fails leaves the database as it was before it.
 * Throws when the file of an applied migration has changed, or when the database needs a later version. Several
 * processes may do this at once: one works, the others wait. Applied migrations that this version does not know are left
 * alone.
 */
export async function migrate(
  storage: MigratedStorage,
  migrations: readonly Migration[],
  { folder = defaultFolder, now = nowText, version, onWait = () => {}, locks }: Options = {},
): Promise<string[]> {
  const sources = await withChecksums(migrations, folder)
  const run = { now, version, onWait, locks: { ...defaultLocks, ...locks } }
  return storage.dialect === 'sqlite'
    ? migrateSqlite(storage, sources, run)
    : migratePostgres(storage, sources, run)
}

const nowText = () => new Date().toISOString()

export async function migrationStatus(
  storage: Pick<Storage, 'dialect' | 'read'>,
  migrations: readonly Migration[],
  { folder = defaultFolder, version }: Options = {},
): Promise<MigrationState[]> {
  await checkVersion(storage, version)
  const sources = await withChecksums(migrations, folder)
  const ledger = await ledgerOf(storage)
  return sources.map(({ name, checksum }) => {
    const row = ledger.get(name)
    const state = !row ? 'pending' : row.checksum === checksum ? 'applied' : 'changed'
    return { name, state, appliedAt: row?.appliedAt ?? null }
  })
}

/** Names of what is missing. Throws as `migrate` does. */
export async function pendingMigrations(
  storage: MigratedStorage,
  migrations: readonly Migration[],
  options: Options = {},
): Promise<string[]> {
  const states = await migrationStatus(storage, migrations, options)
  for (const { name, state } of states) if (state === 'changed') throw changed(name)
  return states.filter((it) => it.state === 'pending').map((it) => it.name)
}

/** Names of those that a later version has applied. */
export async function unknownMigrations(
  storage: MigratedStorage,
  migrations: readonly Migration[],
): Promise<string[]> {
  const known = new Set(migrations.map(({ name }) => name))
  return [...(await ledgerOf(storage)).keys()].filter((name) => !known.has(name)).sort()
}

type Source = Migration & { checksum: string }

function withChecksums(migrations: readonly Migration[], folder: URL): Promise<Source[]> {
  return Promise.all(
    migrations.map(async (migration) => {
      const text = await readFile(new URL(`${migration.name}.ts`, folder))
      return { ...migration, checksum: createHash('sha256').update(text).digest('hex') }
    }),
  )
}

/** By name, as they are recorded when a migration is applied. */
export async function checksumsOf(
  migrations: readonly Migration[],
  { folder = defaultFolder }: Options = {},
): Promise<Map<string, string>> {
  const sources = await withChecksums(migrations, folder)
  return new Map(sources.map(({ name, checksum }) => [name, checksum]))
}

/** The write itself holds the lock: SQLite lets only one process begin one. */
async function migrateSqlite(
  storage: MigratedStorage,
  sources: readonly Source[],
  { now, version }: Run,
): Promise<string[]> {
  const check = (read: Db) => checkVersion({ dialect: 'sqlite', read }, version)
  const applied: string[] = []
  const missing = await storage.write(async (tx) => {
    await check(tx)
    await createLedger(tx as AnyDb)
    return missingIn(tx as AnyDb, sources)
  })
  for (const source of missing) {
    const done = await explained(source.name, 'failed and changed nothing', () =>
      storage.write(async (tx) => {
        // Another process may have applied others since.
        await check(tx)
        return applyOnce(schemaFor(tx, 'sqlite'), source, now())
      }),
    )
    if (done) applied.push(source.name)
  }
  return applied
}

async function migratePostgres(
  storage: MigratedStorage,
  sources: readonly Source[],
  { now, version, onWait, locks: limits }: Run,
): Promise<string[]> {
  const watcher = storage.read as AnyDb
  return watcher.connection().execute(async (db) => {
    // It pauses for at most ten seconds.
    await setConnectionTimeouts(db)
    await acquireMigrationLock(db, (blockers) => onWait({ migration: null, blockers }))
    try {
      await checkVersion({ dialect: 'postgres', read: db }, version)
      await createLedger(db)
      const applied: string[] = []
      const on = { db, watcher, limits }
      for (const source of await missingIn(db, sources)) {
        const { name, indexes } = source
        const outcome = indexes ? 'failed and kept the indexes that were done' : 'failed and changed nothing'
        await explained(name, outcome, async () => {
          if (indexes) await buildConcurrently(name, indexes, on, onWait)
          const work = (tx: AnyDb) => applyOnce(schemaFor(tx, 'postgres'), source, now())
          await inSlices(name, on, work, onWait)
        })
        applied.push(name)
      }
      return applied
    } finally {
      // The lock of a lost connection is gone as well, and the reason is what matters.
      await releaseMigrationLock(db).catch(() => {})
    }
  })
}

/** What was not applied yet. Throws when the file of what was has changed. */
async function missingIn(db: AnyDb, sources: readonly Source[]): Promise<Source[]> {
  const ledger = await readLedger(db)
  for (const { name, checksum } of sources) {
    const row = ledger.get(name)
    if (row && row.checksum !== checksum) throw changed(name)
  }
  return sources.filter(({ name }) => !ledger.has(name))
}

const changed = (name: string): SetupError =>
  new SetupError(
    `Migration checksum mismatch for ${name}. The file changed after being applied. Add a new migration instead.`,
  )

async function explained<T>(name: string, outcome: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof SetupError) throw error
    const [reason] = (error instanceof Error ? error.message : String(error)).split('\n')
    throw new SetupError(`Migration ${name} ${outcome}: ${reason}`, { cause: error })
  }
}

/** In the transaction of the migration. On Postgres indexes were built before it. */
async function applyOnce(schema: Schema, source: Source, now: string): Promise<boolean> {
  const { db, dialect } = schema
  const { name, up, indexes = [], oldestVersion } = source
  if ((await readLedger(db)).has(name)) return false
  await up?.(schema)
  if (dialect === 'sqlite') for (const index of indexes) await createIndex(db, index)
  if (oldestVersion !== undefined) await raiseOldestVersion(db, { version: oldestVersion, migration: name })
  await addToLedger(db, source, now)
  return true
}
