import { sql } from 'kysely'
import type { AnyDb } from './columns.ts'
import type { Storage } from './db.ts'

/** An advisory lock that no other program takes: the bytes of "svc", and 1 for migrations. */
const [space, key] = [sql.lit(0x737663), sql.lit(1)]

/** Waits for the lock, which the connection holds until it ends. Postgres only. */
export async function lock(db: AnyDb): Promise<void> {
  await sql`select pg_advisory_lock(${space}, ${key})`.execute(db)
}

export async function unlock(db: AnyDb): Promise<void> {
  await sql`select pg_advisory_unlock(${space}, ${key})`.execute(db)
}

/**
 * Ends the connections that hold the migration lock and returns how many there were: for a server that hangs or lost
 * its network during a migration. On SQLite the lock ends with its process.
 */
export async function breakMigrationLock({
  dialect,
  read,
}: Pick<Storage, 'dialect' | 'read'>): Promise<number> {
  if (dialect === 'sqlite') return 0
  const { rows } = await sql`
    select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and granted and classid = ${space} and objid = ${key}
      and database = (select oid from pg_database where datname = current_database())
      and pid <> pg_backend_pid()`.execute(read)
  return rows.length
}
