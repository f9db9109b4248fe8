import { type Expression, type SelectQueryBuilder, type SqlBool, sql } from 'kysely'
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
 * The same for a count that may look at every row of `table`, on `storage.heavy`. On SQLite each half is counted in
 * a reader thread of its own; Postgres shares out the work by itself.
 */
export async function countInHalves<DB, TB extends keyof DB>(
  found: SelectQueryBuilder<DB, TB, object>,
  table: TB & string,
): Promise<number> {
  const rowid = sql.ref(`${table}.rowid`)
  const middle = sql`(select max(rowid) / 2 from ${sql.table(table)})`
  const lower = byDialect<SqlBool>({ sqlite: sql`${rowid} <= ${middle}`, postgres: sql`1 = 1` })
  const upper = byDialect<SqlBool>({ sqlite: sql`${rowid} > ${middle}`, postgres: sql`1 = 0` })
  const half = (which: Expression<SqlBool>) => countOf(found.where(which))
  const [a, b] = await Promise.all([half(lower), half(upper)])
  return a + b
}
