import { sql } from 'kysely'
import type { AnyDb } from './columns.ts'
import type { Storage } from './db.ts'

type Ledger = Map<string, { checksum: string; appliedAt: string }>
type ReadStorage = Pick<Storage, 'dialect' | 'read'>

export async function createLedger(db: AnyDb): Promise<void> {
  await sql`create table if not exists svc_migrations (
    name text primary key, checksum text not null, applied_at text not null
  )`.execute(db)
}

/** The applied migrations; empty for a database without any table. */
export async function ledgerOf(storage: ReadStorage): Promise<Ledger> {
  return (await hasTable(storage, 'svc_migrations')) ? readLedger(storage.read as AnyDb) : new Map()
}

export async function readLedger(db: AnyDb): Promise<Ledger> {
  const rows = await db.selectFrom('svc_migrations').selectAll().execute()
  return new Map(rows.map((row) => [row.name, { checksum: row.checksum, appliedAt: row.applied_at }]))
}

export async function addToLedger(
  db: AnyDb,
  { name, checksum }: { name: string; checksum: string },
  now: string,
): Promise<void> {
  await db.insertInto('svc_migrations').values({ name, checksum, applied_at: now }).execute()
}

export async function hasTable({ dialect, read }: ReadStorage, name: string): Promise<boolean> {
  const found =
    dialect === 'sqlite'
      ? sql`select 1 as found from sqlite_schema where type = 'table' and name = ${name}`
      : sql`select 1 as found where to_regclass(${name}) is not null`
  return (await found.execute(read)).rows.length > 0
}
