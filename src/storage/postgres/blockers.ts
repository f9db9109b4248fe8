import { sql } from 'kysely'
import type { AnyDb } from '../columns.ts'
import type { Blocker } from '../migration-wait.ts'

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
