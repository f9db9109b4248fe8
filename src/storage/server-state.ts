import { accessSync, constants } from 'node:fs'
import { sql } from 'kysely'
import type { ReadStorage } from './db.ts'

/** A transaction that keeps its locks, and keeps deleted rows from being removed. */
type IdleTransaction = { pid: number; application: string; seconds: number }

export type ServerState = {
  /** `SQLite 3.50.4`, `PostgreSQL 18.1` */
  version: string
  /** Milliseconds since 1970 by the clock of the database server; undefined on SQLite, which has none of its own. */
  clockMs: number | undefined
  /** Of all programs that use the server; undefined on SQLite. */
  connections: { used: number; max: number } | undefined
  /** The server or the file system accepts no change. */
  isReadOnly: boolean
  /** Share of the file that deleted rows have left free; undefined on Postgres, which reuses it by itself. */
  freeShare: number | undefined
  /** The service returns free room to the disk; false: only `svc db vacuum` does. */
  givesSpaceBack: boolean
  /** Idle for five minutes or longer, oldest first, at most ten. */
  idleTransactions: IdleTransaction[]
}

export async function serverStateOf({ dialect, read }: ReadStorage): Promise<ServerState> {
  return dialect === 'sqlite' ? sqliteState(read) : postgresState(read)
}

async function sqliteState(read: ReadStorage['read']): Promise<ServerState> {
  const { rows } = await sql<{ version: string; file: string; free: number; pages: number; auto: number }>`
    select sqlite_version() as version, file, (select freelist_count from pragma_freelist_count) as free,
      (select page_count from pragma_page_count) as pages,
      (select auto_vacuum from pragma_auto_vacuum) as auto
    from pragma_database_list where name = 'main'`.execute(read)
  const { version, file, free, pages, auto } = rows[0]!
  return {
    version: `SQLite ${version}`,
    clockMs: undefined,
    connections: undefined,
    isReadOnly: !isWritable(file),
    freeShare: free / Math.max(1, pages),
    givesSpaceBack: auto === 2,
    idleTransactions: [],
  }
}

async function postgresState(read: ReadStorage['read']): Promise<ServerState> {
  const { rows } = await sql<{
    version: string
    clock: string
    used: string
    max: string
    readonly: string
  }>`
    select current_setting('server_version') as version,
      extract(epoch from clock_timestamp()) * 1000 as clock, current_setting('max_connections') as max,
      current_setting('transaction_read_only') as readonly,
      (select count(*) from pg_stat_activity where backend_type = 'client backend') as used`.execute(read)
  const idle = await sql<{ pid: number; application: string; seconds: string }>`
    select pid, application_name as application, extract(epoch from now() - state_change) as seconds
    from pg_stat_activity
    where datname = current_database() and state like 'idle in transaction%'
      and state_change < now() - interval '5 minutes'
    order by state_change limit 10`.execute(read)
  const { version, clock, used, max, readonly } = rows[0]!
  return {
    version: `PostgreSQL ${version}`,
    clockMs: Number(clock),
    connections: { used: Number(used), max: Number(max) },
    isReadOnly: readonly === 'on',
    freeShare: undefined,
    givesSpaceBack: true,
    idleTransactions: idle.rows.map(({ seconds, ...one }) => ({
      ...one,
      seconds: Math.round(Number(seconds)),
    })),
  }
}

function isWritable(file: string): boolean {
  try {
    accessSync(file, constants.W_OK)
    return true
  } catch {
    // A file that is not there cannot be written either.
    return false
  }
}
