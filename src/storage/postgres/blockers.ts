import { sql } from 'kysely'
import type { AnyDb } from '../columns.ts'

/** A connection that holds what another one waits for. */
export type Blocker = {
  /** 0: a prepared transaction, which has no connection. */
  pid: number
  user: string | null
  application: string | null
  state: string | null
  /** When its transaction began; null also where this role may not know. */
  since: string | null
}

const blocker = sql`blocker.pid, a.usename as user, a.application_name as application, a.state,
  to_char(a.xact_start at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since`

/** The connections that the one with this process id waits for. */
export async function blockersOf(db: AnyDb, pid: number): Promise<Blocker[]> {
  const { rows } =
    await sql<Blocker>`select distinct ${blocker} from unnest(pg_blocking_pids(${pid}::int)) as blocker(pid)
    left join pg_stat_activity a on a.pid = blocker.pid order by since nulls last, pid`.execute(db)
  return rows
}

/** Those that hold the advisory lock of these two numbers in this database. */
export async function holdersOf(db: AnyDb, [space, key]: readonly [number, number]): Promise<Blocker[]> {
  const { rows } = await sql<Blocker>`select ${blocker} from pg_locks as blocker
    left join pg_stat_activity a on a.pid = blocker.pid
    where blocker.locktype = 'advisory' and blocker.granted
      and blocker.classid::bigint = ${space}::bigint and blocker.objid::bigint = ${key}::bigint
      and blocker.database = (select oid from pg_database where datname = current_database())`.execute(db)
  return rows
}

/** `pid 4711 (psql of alice, idle in transaction since 2026-03-01T12:00:00Z)` */
export function describeBlocker({ pid, user, application, state, since }: Blocker): string {
  if (pid === 0) return 'a prepared transaction (select * from pg_prepared_xacts)'
  const who = [application || 'unnamed', ...(user ? [`of ${user}`] : [])].join(' ')
  const what = [state, ...(since ? [`since ${since}`] : [])].filter(Boolean).join(' ')
  return `pid ${pid} (${[who, what].filter(Boolean).join(', ')})`
}

/** What keeps a migration waiting: the locks of other transactions, or (null) another process that migrates. */
export type MigrationWait = { migration: string | null; blockers: Blocker[] }

export function describeWait({ migration, blockers }: MigrationWait): string {
  const who = blockers.map(describeBlocker).join(', ')
  return migration === null
    ? `waiting for another process that migrates: ${who || 'it has just ended'}; svc db unlock ends it`
    : `migration ${migration} waits for a lock of ${who}`
}
