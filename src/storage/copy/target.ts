import { accessSync, constants, existsSync, realpathSync } from 'node:fs'
import { dirname } from 'node:path'
import { sql } from 'kysely'
import { SetupError } from '../../core/errors.ts'
import { listTables, setCounters, type TableShape } from '../backup/catalog.ts'
import { copyMarkName, dropMark } from '../backup/restore-mark.ts'
import { type DatabaseLocation, driverOf } from '../backup/restore-target.ts'
import type { RowLoader } from '../backup/target-driver.ts'
import type { AnyDb } from '../columns.ts'
import type { Db, Dialect } from '../db.ts'
import { type Migration, migrate } from '../migrate.ts'
import { hasTable } from '../migration-ledger.ts'
import { dropOldestVersion, raiseOldestVersion } from '../oldest-version.ts'
import { openReadOnly, openStorage } from '../open.ts'
import { countRowsOf } from '../query/counts.ts'
import { dialectTraits } from '../traits.ts'
import { countCopied, createProgress, dropProgress, droppedConstraints, readOrigin } from './progress.ts'

export type CopyTarget = RowLoader & {
  /** Whether it stores texts with a NUL. */
  acceptsNul: boolean
  /** Checks all foreign keys, and lets the service open the database; in one transaction with `last`. */
  finish(counters: Readonly<Record<string, number>>, last: () => Promise<void>): Promise<void>
}

/** What the target holds: nothing, or so many rows of an unfinished copy. */
export type TargetContents = { state: 'empty' } | { state: 'unfinished'; rows: number; since: string }

/** It holds something other than a copy that has not ended. */
export class TargetNotEmptyError extends SetupError {}

const used = (place: DatabaseLocation) =>
  new TargetNotEmptyError(
    `${describeLocation(place)} is not empty, and a copy overwrites nothing: name an empty database.`,
  )

/** What is copied: the fingerprint of the database, and what made its schema. */
export type CopyOrigin = { identity: string; migrations: readonly Migration[]; tables: readonly TableShape[] }

export const describeLocation = ({ dataDir, databaseUrl }: DatabaseLocation): string => {
  if (databaseUrl === undefined) return dataDir
  const { host, pathname } = new URL(databaseUrl)
  return `PostgreSQL at ${host || 'localhost'}, database ${decodeURIComponent(pathname.slice(1))}`
}

/** Changes nothing. @throws SetupError when it holds something else, or cannot be written to */
export async function inspectTarget(
  place: DatabaseLocation,
  { identity }: Pick<CopyOrigin, 'identity'>,
  from?: Opened,
): Promise<TargetContents> {
  const driver = await driverOf(place)
  if ((await driver.state()) !== 'used') {
    await assertWritable(place)
    return { state: 'empty' }
  }
  const storage = await openReadOnly(place)
  try {
    if (from && (await isSame(from, { place, db: storage.read }))) {
      throw new SetupError(
        `${describeLocation(place)} is the database that is to be copied: name another one.`,
      )
    }
    if (!(await hasTable(storage, copyMarkName))) {
      throw used(place)
    }
    const db = storage.read as AnyDb
    const { source, since } = await readOrigin(db)
    if (source === identity) return { state: 'unfinished', rows: await countCopied(db), since }
    throw new SetupError(
      `${describeLocation(place)} holds the unfinished copy of another database, or of this one before it was migrated: name an empty one.`,
    )
  } finally {
    await storage.close()
  }
}

type Opened = { place: DatabaseLocation; db: Db }

async function isSame(one: Opened, other: Opened): Promise<boolean> {
  if (one.place.databaseUrl === undefined || other.place.databaseUrl === undefined) {
    if (one.place.databaseUrl !== other.place.databaseUrl) return false
    return realpathSync(one.place.dataDir) === realpathSync(other.place.dataDir)
  }
  const found = async ({ db }: Opened) => {
    const { rows } =
      await sql`select current_database(), current_schema(), pg_postmaster_start_time()::text`.execute(db)
    return JSON.stringify(rows)
  }
  return (await found(one)) === (await found(other))
}

/** @throws SetupError */
async function assertWritable({ dataDir, databaseUrl }: DatabaseLocation): Promise<void> {
  if (databaseUrl === undefined) {
    let folder = dataDir
    while (!existsSync(folder)) folder = dirname(folder)
    try {
      accessSync(folder, constants.W_OK)
    } catch (error) {
      throw new SetupError(`Cannot write to ${folder}: ${(error as NodeJS.ErrnoException).code}`)
    }
    return
  }
  const storage = await openStorage({ dataDir, databaseUrl, postgres: { poolSize: 2 } })
  const { rows } = await sql<{ may: number }>`
    select case when has_schema_privilege(current_schema(), 'create') then 1 else 0 end as may`
    .execute(storage.read)
    .finally(() => storage.close())
  if (rows[0]!.may === 1) return
  throw new SetupError(
    `The role may not create tables in ${describeLocation({ dataDir, databaseUrl })}: grant it CREATE on the schema, or name a database that it owns.`,
  )
}

/** Runs `work` on the target, which keeps what was written when it does not come to its end. */
export async function withCopyTarget<T>(
  place: DatabaseLocation,
  origin: CopyOrigin,
  work: (target: CopyTarget) => Promise<T>,
): Promise<T> {
  const driver = await driverOf(place)
  const unlock = await driver.lock()
  try {
    if ((await inspectTarget(place, origin)).state === 'empty') {
      // Until the copy begins, what is left of an interruption is marked as a restore, and made anew.
      if ((await driver.begin()) === 'used') throw used(place)
      await makeSchema(place, origin)
    }
    const dialect: Dialect = place.databaseUrl === undefined ? 'sqlite' : 'postgres'
    return await driver.load((loader) => work(targetOf(loader, dialect, origin)), droppedConstraints)
  } finally {
    await unlock()
  }
}

/** None has it. */
const noVersion = '9999.0.0'

async function makeSchema(
  place: DatabaseLocation,
  { identity, migrations, tables }: CopyOrigin,
): Promise<void> {
  const storage = await openStorage({ ...place, postgres: { poolSize: 4, statementMs: 0 } })
  try {
    await migrate(storage, migrations)
    await storage.write(async (tx) => {
      const db = tx as AnyDb
      await assertSameTables(db, storage.dialect, tables)
      // Rows that migrations make.
      for (const { name } of tables) await db.deleteFrom(name).execute()
      await createProgress(db, identity, new Date().toISOString())
      // A version from before this command does not look for the copy, and refuses by this.
      await raiseOldestVersion(db, { version: noVersion, migration: copyMarkName })
      await dropMark(db)
    })
  } finally {
    await storage.close()
  }
}

/** @throws SetupError for a table that somebody has changed by hand */
async function assertSameTables(db: AnyDb, dialect: Dialect, tables: readonly TableShape[]): Promise<void> {
  const made = new Map((await listTables(db, dialect)).map((table) => [table.name, table]))
  const columnsOf = (table: TableShape | undefined) => table?.columns.map(({ name }) => name).join()
  const other = tables.find((table) => columnsOf(table) !== columnsOf(made.get(table.name)))
  if (other === undefined) return
  throw new SetupError(
    `The table ${other.name} does not have the columns that its migrations make: somebody changed it by hand.`,
  )
}

const targetOf = (loader: RowLoader, dialect: Dialect, { tables, migrations }: CopyOrigin): CopyTarget => ({
  ...loader,
  acceptsNul: dialectTraits[dialect].acceptsNul,
  async finish(counters, last) {
    const { db } = loader
    // The one before closes for good: what was written here must survive a power failure.
    if (dialect === 'sqlite') await sql`pragma synchronous = full`.execute(db)
    await loader.transaction(async () => {
      await loader.end()
      await setCounters(db, dialect, counters)
      for (const { name } of tables) await assertOnlyCopied(db, name)
      await dropProgress(db)
      await dropOldestVersion(db)
      for (const { name, oldestVersion: version } of migrations)
        if (version !== undefined) await raiseOldestVersion(db, { version, migration: name })
      await last()
    })
  },
})

/** @throws SetupError when a program that does not know what an unfinished copy is has written to it */
async function assertOnlyCopied(db: AnyDb, table: string): Promise<void> {
  const [there, copied] = [await countRowsOf(db.selectFrom(table)), await countCopied(db, table)]
  if (there === copied) return
  throw new SetupError(
    `The target has ${there} rows of ${table} instead of ${copied}: another program wrote to it. Name an empty database.`,
  )
}
