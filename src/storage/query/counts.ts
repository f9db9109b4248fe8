import { type SelectQueryBuilder, type SqlBool, sql } from 'kysely'
import { ofOne, type Scope } from '../../core/scope.ts'
import type { Db } from '../db.ts'
import { plainContains } from './expressions.ts'
import { isPostgres } from './prepared.ts'
import { inScope } from './scope.ts'

/** The number of rows that a query finds; it must not have selected anything yet. */
export async function countRowsOf<DB, TB extends keyof DB>(
  found: SelectQueryBuilder<DB, TB, object>,
): Promise<number> {
  const counted = found.select((eb) => eb.fn.countAll<number>().as('total'))
  const row = await counted.executeTakeFirstOrThrow()
  return (row as { total: number }).total
}

/**
 * Splits a query that may read every row of `table` into parts to run at once on `storage.readQueries`: on SQLite each
 * half of the table gets a reader thread of its own; Postgres parallelizes by itself.
 */
export function splitTableScan<DB, TB extends keyof DB, O>(
  db: Db,
  found: SelectQueryBuilder<DB, TB, O>,
  table: TB & string,
): SelectQueryBuilder<DB, TB, O>[] {
  if (isPostgres(db.getExecutor())) return [found]
  const rowid = sql.ref(`${table}.rowid`)
  const middle = sql`(select max(rowid) / 2 from ${sql.table(table)})`
  return [found.where(sql<SqlBool>`${rowid} <= ${middle}`), found.where(sql<SqlBool>`${rowid} > ${middle}`)]
}

/** The number of filters of an organization with a condition on a site or a group, which would select nothing without it. */
export const countFiltersOn = (
  db: Db,
  scope: Scope,
  { id, orgId }: { id: string; orgId: string },
): Promise<number> =>
  countRowsOf(
    db
      .selectFrom('saved_filters')
      .where(inScope(ofOne(scope), 'saved_filters.org_id'))
      .where('org_id', '=', orgId)
      .where(plainContains('conditions', id)),
  )
