import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { advisoryLocks } from './advisory-locks.ts'
import type { AnyDb } from './columns.ts'
import type { Storage } from './db.ts'
import type { Blocker } from './migration-wait.ts'
import { holdersOf } from './postgres/blockers.ts'

const lockKey = advisoryLocks.migration
const [space, key] = [sql.lit(lockKey[0]), sql.lit(lockKey[1])]

const askMs = 200
/** How many questions apart are two reports of who has the lock. */
const reportEvery = 150

/**
 * Waits for the lock, which the connection holds until it ends. Postgres only. It asks again and again: a statement that
 * waits has a snapshot, for whose end an index that the holder builds concurrently would wait.
 */
export async function acquireMigrationLock(db: AnyDb, onWait: (holders: Blocker[]) => void): Promise<void> {
  for (let asked = 0; !(await tryLock(db)); asked += 1) {
    if (asked % reportEvery === 5) onWait(await holdersOf(db, lockKey))
    await sleep(askMs)
  }
}

async function tryLock(db: AnyDb): Promise<boolean> {
  const { rows } = await sql<{
    locked: number
  }>`select pg_try_advisory_lock(${space}, ${key}) as locked`.execute(db)
  return rows[0]!.locked === 1
}

export async function releaseMigrationLock(db: AnyDb): Promise<void> {
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
