import { statSync } from 'node:fs'
import { sql } from 'kysely'
import type { Storage } from './db.ts'

/** A transaction that keeps its locks, and keeps deleted rows from being removed. */
type IdleTransaction = { pid: number; application: string; seconds: number }

export type ServerState = {
  /** `SQLite 3.50.4`, `PostgreSQL 18.1` */
  version: string
  bytes: number
  /** Milliseconds since 1970 by the clock of the database server; undefined on SQLite, which has none of its own. */
  clockMs: number | undefined
  /** Of all programs that use the server; undefined on SQLite. */
  connections: { used: number; max: number } | undefined
  /** Idle for five minutes or longer, oldest first, at most ten. */
  idleTransactions: IdleTransaction[]
}

export async function serverStateOf({
  dialect,
  read,
}: Pick<Storage, 'dialect' | 'read'>): Promise<ServerState> {
  return dialect === 'sqlite' ? sqliteState(read) : postgresState(read)
}

async function sqliteState(read: Storage['read']): Promise<ServerState> {
  const { rows } = await sql<{ version: string; file: string }>`
    select sqlite_version() as version, file from pragma_database_list where name = 'main'`.execute(read)
  const { version, file } = rows[0]!
  const bytes = [file, `${file}-wal`].reduce(
    (sum, one) => sum + (statSync(one, { throwIfNoEntry: false })?.size ?? 0),
    0,
  )
  return {
    version: `SQLite ${version}`,
    bytes,
    clockMs: undefined,
    connections: undefined,
    idleTransactions: [],
  }
}

async function postgresState(read: Storage['read']): Promise<ServerState> {
  const { rows } = await sql<{ version: string; bytes: string; clock: string; used: string; max: string }>`
    select current_setting('server_version') as version, pg_database_size(current_database()) as bytes,
      extract(epoch from clock_timestamp()) * 1000 as clock, current_setting('max_connections') as max,
      (select count(*) from pg_stat_activity where backend_type = 'client backend') as used`.execute(read)
  const idle = await sql<{ pid: number; application: string; seconds: string }>`
    select pid, application_name as application, extract(epoch from now() - state_change) as seconds
    from pg_stat_activity
    where datname = current_database() and state like 'idle in transaction%'
      and state_change < now() - interval '5 minutes'
    order by state_change limit 10`.execute(read)
  const { version, bytes, clock, used, max } = rows[0]!
  return {
    version: `PostgreSQL ${version}`,
    bytes: Number(bytes),
    clockMs: Number(clock),
    connections: { used: Number(used), max: Number(max) },
    idleTransactions: idle.rows.map(({ seconds, ...one }) => ({
      ...one,
      seconds: Math.round(Number(seconds)),
    })),
  }
}
