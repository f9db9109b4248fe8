import { sql } from 'kysely'
import type { Db } from '../db.ts'

/* What the statistics of Postgres show about the tables of this database. Each list is at most `maxListed` long. */

const maxListed = 5

export type Statement = { text: string; calls: number; meanMs: number; totalMs: number }
export type Slot = { name: string; isActive: boolean; bytes: number; status: string }
export type PostgresUpkeep = {
  /** Slow ones, by their total time; undefined: pg_stat_statements is not there, or not loaded. */
  statements: Statement[] | undefined
  /** Large tables that are read from end to end often, as compared with reads by an index. */
  scanned: { table: string; rows: number; scans: number }[]
  /** Tables of which the planner knows nothing. */
  unanalyzed: { table: string; rows: number }[]
  /** Tables with many rows that were deleted or replaced, and are still there. */
  dead: { table: string; dead: number; live: number }[]
  /** Large indexes that no statement has read since the statistics began, while rows were written. */
  unused: { index: string; table: string; bytes: number }[]
  /** Indexes that a statement of `concurrently` left behind, and nobody builds now. */
  invalid: { index: string; table: string }[]
  /** Transactions since the oldest row that vacuum did not freeze yet: writes stop at two billion. */
  transactionAge: number
  /** Replication slots, and how much of the write-ahead log each keeps. */
  slots: Slot[]
  /** Extensions that are older than those of the server. */
  outdated: { name: string; installed: string; available: string }[]
}

const rowsOf = async <R>(db: Db, query: ReturnType<typeof sql<R>>): Promise<R[]> =>
  (await query.execute(db)).rows

/** One after the other, in one connection. */
export async function postgresUpkeep(db: Db): Promise<PostgresUpkeep> {
  const scanned = await rowsOf(
    db,
    sql<{ table: string; rows: string; scans: string }>`
      select relname as table, n_live_tup as rows, seq_scan as scans from pg_stat_user_tables
      where n_live_tup >= 10000 and seq_scan >= 100 and seq_scan * 10 > coalesce(idx_scan, 0)
      order by seq_tup_read desc limit ${maxListed}`,
  )
  const unanalyzed = await rowsOf(
    db,
    sql<{ table: string; rows: string }>`
      select relname as table, n_live_tup as rows from pg_stat_user_tables
      where n_live_tup >= 1000 and last_analyze is null and last_autoanalyze is null
      order by n_live_tup desc limit ${maxListed}`,
  )
  const dead = await rowsOf(
    db,
    sql<{ table: string; dead: string; live: string }>`
      select relname as table, n_dead_tup as dead, n_live_tup as live from pg_stat_user_tables
      where n_dead_tup >= 10000 and n_dead_tup > 0.4 * n_live_tup
      order by n_dead_tup desc limit ${maxListed}`,
  )
  // What enforces a rule is needed, whether or not it is read.
  const unused = await rowsOf(
    db,
    sql<{ index: string; table: string; bytes: string }>`
      select i.indexrelname as index, i.relname as table, pg_relation_size(i.indexrelid) as bytes
      from pg_stat_user_indexes i
      join pg_stat_user_tables t on t.relid = i.relid
      join pg_index x on x.indexrelid = i.indexrelid
      where i.idx_scan = 0 and not x.indisunique and x.indisvalid
        and t.n_tup_ins + t.n_tup_upd >= 100000 and pg_relation_size(i.indexrelid) >= 1048576
      order by pg_relation_size(i.indexrelid) desc limit ${maxListed}`,
  )
  const invalid = await rowsOf(
    db,
    sql<{ index: string; table: string }>`
      select c.relname as index, t.relname as table from pg_index x
      join pg_class c on c.oid = x.indexrelid
      join pg_class t on t.oid = x.indrelid
      where not x.indisvalid and c.relkind = 'i'
        and not exists (select 1 from pg_stat_progress_create_index p where p.index_relid = x.indexrelid)
      order by c.relname limit ${maxListed}`,
  )
  const [age] = await rowsOf(
    db,
    sql<{ age: string }>`select age(datfrozenxid) as age from pg_database where datname = current_database()`,
  )
  const slots = await rowsOf(
    db,
    sql<{ name: string; active: string | boolean | number; bytes: string | null; status: string | null }>`
      select slot_name as name, case when active then 1 else 0 end as active, wal_status as status,
        pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end,
          restart_lsn) as bytes
      from pg_replication_slots order by restart_lsn limit ${maxListed}`,
  )
  const outdated = await rowsOf(
    db,
    sql<{ name: string; installed: string; available: string }>`
      select name, installed_version as installed, default_version as available
      from pg_available_extensions where installed_version <> default_version order by name limit ${maxListed}`,
  )
  return {
    statements: await statementsOf(db),
    scanned: scanned.map(({ table, rows, scans }) => ({ table, rows: Number(rows), scans: Number(scans) })),
    unanalyzed: unanalyzed.map(({ table, rows }) => ({ table, rows: Number(rows) })),
    dead: dead.map(({ table, dead, live }) => ({ table, dead: Number(dead), live: Number(live) })),
    unused: unused.map(({ bytes, ...one }) => ({ ...one, bytes: Number(bytes) })),
    invalid,
    transactionAge: Number(age!.age),
    slots: slots.map(({ name, active, bytes, status }) => ({
      name,
      isActive: Number(active) === 1,
      bytes: Number(bytes ?? 0),
      status: status ?? 'unknown',
    })),
    outdated,
  }
}

/**
 * Statements of this user in this database that take 200 ms or longer on average. Only those whose values Postgres replaces by `$1`: the
 * text of others may contain a password.
 */
async function statementsOf(db: Db): Promise<Statement[] | undefined> {
  const [found] = await rowsOf(
    db,
    sql<{ schema: string }>`
      select n.nspname as schema from pg_extension e join pg_namespace n on n.oid = e.extnamespace
      where e.extname = 'pg_stat_statements'`,
  )
  if (!found) return undefined
  try {
    const rows = await rowsOf(
      db,
      sql<{ text: string; calls: string; mean: string; total: string }>`
        select left(regexp_replace(query, '\\s+', ' ', 'g'), 4000) as text, calls, mean_exec_time as mean,
          total_exec_time as total
        from ${sql.table(`${found.schema}.pg_stat_statements`)}
        where dbid = (select oid from pg_database where datname = current_database())
          and userid = (select oid from pg_roles where rolname = current_user)
          and query ~* '^\\s*(select|insert|update|delete|with)\\s'
          and calls >= 10 and mean_exec_time >= 200
        order by total_exec_time desc limit ${maxListed}`,
    )
    return rows.map(({ text, calls, mean, total }) => ({
      text: withoutValues(text),
      calls: Number(calls),
      meanMs: Number(mean),
      totalMs: Number(total),
    }))
  } catch (error) {
    // 55000: it is created, and not in shared_preload_libraries. 42703: it is of before PostgreSQL 13.
    if (['55000', '42703'].includes((error as { code?: string }).code ?? '')) return undefined
    throw error
  }
}

/** Postgres has replaced the values; what a later version leaves in does not go further than here. */
const withoutValues = (text: string): string => text.replace(/'(?:[^']|'')*'?/g, "'…'")
