import { type SelectQueryBuilder, sql } from 'kysely'
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
 * The same where it takes a look at every row of `table`: Postgres shares the work out by itself, SQLite's two
 * reader threads are given half of the table each.
 */
export async function countOfAll<DB, TB extends keyof DB>(
  found: SelectQueryBuilder<DB, TB, object>,
  table: TB & string,
): Promise<number> {
  const row = sql`${sql.table(table)}.rowid`
  const middle = sql`(select max(rowid) / 2 from ${sql.table(table)})`
  const [first, second] = await Promise.all([
    countOf(found.where(byDialect<boolean>({ sqlite: sql`${row} <= ${middle}`, postgres: sql`1 = 1` }))),
    countOf(found.where(byDialect<boolean>({ sqlite: sql`${row} > ${middle}`, postgres: sql`1 = 0` }))),
  ])
  return first + second
}
