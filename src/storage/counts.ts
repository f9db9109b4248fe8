import { type SelectQueryBuilder, type SqlBool, sql } from 'kysely'
import { byDialect } from './compilers.ts'

/** How many rows a query finds; it has not selected anything yet. */
export async function countOf<DB, TB extends keyof DB>(
  found: SelectQueryBuilder<DB, TB, object>,
): Promise<number> {
  const counted = found.select((eb) => eb.fn.countAll<number>().as('total'))
  const row = await counted.executeTakeFirstOrThrow()
  return (row as { total: number }).total
}

/**
 * A query that may look at every row of `table`, in two parts to be asked at once on `storage.heavy`. On SQLite each
 * is a half of the table, for a reader thread of its own; Postgres shares out the work by itself: its second is empty.
 */
export function inHalves<DB, TB extends keyof DB, O>(
  found: SelectQueryBuilder<DB, TB, O>,
  table: TB & string,
): SelectQueryBuilder<DB, TB, O>[] {
  const rowid = sql.ref(`${table}.rowid`)
  const middle = sql`(select max(rowid) / 2 from ${sql.table(table)})`
  return [
    found.where(byDialect<SqlBool>({ sqlite: sql`${rowid} <= ${middle}`, postgres: sql`1 = 1` })),
    found.where(byDialect<SqlBool>({ sqlite: sql`${rowid} > ${middle}`, postgres: sql`1 = 0` })),
  ]
}
