import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { sql } from 'kysely'
import { SetupError } from '../core/errors.ts'
import { packageFile } from '../core/package-files.ts'
import { type AnyDb, type Schema, schemaFor } from './columns.ts'
import { lock, unlock } from './migration-lock.ts'
import type { Storage } from './open.ts'

export type Migration = { name: string; up: (schema: Schema) => Promise<void> }

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
}
type Ledger = Map<string, { checksum: string; appliedAt: string }>

const defaultFolder = packageFile('migrations/')

/**
 * Applies what is missing, in order, each in a transaction of its own, and returns the names. Throws when
 * the file of an applied migration has changed. Several processes may do this at once: one works, the
 * others wait. Applied migrations that this version does not know are left alone.
 */
export async function migrate(
  storage: MigratedStorage,
  migrations: readonly Migration[],
  { folder = defaultFolder, now = () => new Date().toISOString() }: Options = {},
): Promise<string[]> {
  const sources = await withChecksums(migrations, folder)
  const run = storage.dialect === 'sqlite' ? migrateSqlite : migratePostgres
  return run(storage, sources, now)
}

export async function migrationStatus(
  storage: MigratedStorage,
  migrations: readonly Migration[],
  { folder = defaultFolder }: Options = {},
): Promise<MigrationState[]> {
  const sources = await withChecksums(migrations, folder)
  const ledger = (await hasLedger(storage)) ? await readLedger(storage.read as AnyDb) : new Map()
  return sources.map(({ name, checksum }) => {
    const row = ledger.get(name)
    const state = !row ? 'pending' : row.checksum === checksum ? 'applied' : 'changed'
    return { name, state, appliedAt: row?.appliedAt ?? null }
  })
}

/** Names of what is missing. Throws when the file of an applied migration has changed. */
export async function pendingMigrations(
  storage: MigratedStorage,
  migrations: readonly Migration[],
  options: Options = {},
): Promise<string[]> {
  const states = await migrationStatus(storage, migrations, options)
  for (const { name, state } of states) if (state === 'changed') throw changed(name)
  return states.filter((it) => it.state === 'pending').map((it) => it.name)
}

type Source = Migration & { checksum: string }

function withChecksums(migrations: readonly Migration[], folder: URL): Promise<Source[]> {
  return Promise.all(
    migrations.map(async ({ name, up }) => {
      const text = await readFile(new URL(`${name}.ts`, folder))
      return { name, up, checksum: createHash('sha256').update(text).digest('hex') }
    }),
  )
}

/** The write itself holds the lock: SQLite lets only one process begin one. */
async function migrateSqlite(
  storage: MigratedStorage,
  sources: readonly Source[],
  now: () => string,
): Promise<string[]> {
  const applied: string[] = []
  const missing = await storage.write(async (tx) => {
    await createLedger(tx as AnyDb)
    return missingIn(await readLedger(tx as AnyDb), sources)
  })
  for (const source of missing) {
    const done = await storage.write((tx) => applyOnce(schemaFor(tx, 'sqlite'), source, now()))
    if (done) applied.push(source.name)
  }
  return applied
}

async function migratePostgres(
  storage: MigratedStorage,
  sources: readonly Source[],
  now: () => string,
): Promise<string[]> {
  return (storage.read as AnyDb).connection().execute(async (db) => {
    await lock(db)
    try {
      await createLedger(db)
      const applied: string[] = []
      for (const source of missingIn(await readLedger(db), sources)) {
        const done = await db
          .transaction()
          .execute((tx) => applyOnce(schemaFor(tx, 'postgres'), source, now()))
        if (done) applied.push(source.name)
      }
      return applied
    } finally {
      await unlock(db)
    }
  })
}

/** What was not applied yet. Throws when the file of what was has changed. */
function missingIn(ledger: Ledger, sources: readonly Source[]): Source[] {
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

async function applyOnce(schema: Schema, source: Source, now: string): Promise<boolean> {
  const ledger = await readLedger(schema.db)
  if (ledger.has(source.name)) return false
  await source.up(schema)
  await schema.db
    .insertInto('svc_migrations')
    .values({ name: source.name, checksum: source.checksum, applied_at: now })
    .execute()
  return true
}

async function createLedger(db: AnyDb): Promise<void> {
  await sql`create table if not exists svc_migrations (
    name text primary key, checksum text not null, applied_at text not null
  )`.execute(db)
}

async function hasLedger({ dialect, read }: MigratedStorage): Promise<boolean> {
  const found =
    dialect === 'sqlite'
      ? sql`select name from sqlite_schema where type = 'table' and name = 'svc_migrations'`
      : sql`select 1 as name where to_regclass('svc_migrations') is not null`
  return (await found.execute(read)).rows.length > 0
}

async function readLedger(db: AnyDb): Promise<Ledger> {
  const rows = await db.selectFrom('svc_migrations').selectAll().execute()
  return new Map(rows.map((row) => [row.name, { checksum: row.checksum, appliedAt: row.applied_at }]))
}
