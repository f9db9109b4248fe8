import { sql } from 'kysely'
import isLower from 'semver/functions/lt.js'
import { SetupError } from '../core/errors.ts'
import type { AnyDb } from './columns.ts'
import type { Storage } from './db.ts'
import { hasTable } from './migration-ledger.ts'

/*
 * One row says which version a program needs at least to use this schema. A migration that only adds leaves it alone,
 * so the previous release works beside it; one that removes what a release still uses raises it in its transaction.
 */

type Requirement = { version: string; migration: string }

async function requirementOf(storage: Pick<Storage, 'dialect' | 'read'>): Promise<Requirement | undefined> {
  if (!(await hasTable(storage, 'svc_oldest_version'))) return undefined
  const db = storage.read as AnyDb
  return db.selectFrom('svc_oldest_version').select(['version', 'migration']).executeTakeFirst()
}

/** Never lowers it. */
export async function raiseOldestVersion(db: AnyDb, { version, migration }: Requirement): Promise<void> {
  await sql`create table if not exists svc_oldest_version (
    id integer primary key check (id = 1), version text not null, migration text not null
  )`.execute(db)
  const stored = await db.selectFrom('svc_oldest_version').select('version').executeTakeFirst()
  if (stored && !isLower(stored.version, version)) return
  await db
    .insertInto('svc_oldest_version')
    .values({ id: 1, version, migration })
    .onConflict((it) => it.column('id').doUpdateSet({ version, migration }))
    .execute()
}

/** For what is left of `svc db copy`, which lets no version in while it works. */
export async function dropOldestVersion(db: AnyDb): Promise<void> {
  await sql`drop table if exists svc_oldest_version`.execute(db)
}

/** @throws SetupError when only a later version than this may use the database */
export async function checkVersion(
  storage: Pick<Storage, 'dialect' | 'read'>,
  version: string | undefined,
): Promise<void> {
  if (version === undefined) return
  const needed = await requirementOf(storage)
  if (!needed || !isLower(version, needed.version)) return
  throw new SetupError(
    `The database needs svc ${needed.version} or later since the migration ${needed.migration}, and this is svc ${version}: ` +
      `use svc ${needed.version} or later, or restore a backup from before that migration.`,
  )
}
