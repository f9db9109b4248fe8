import { type Compilable, type Expression, type SelectQueryBuilder, sql } from 'kysely'
import type { Db } from '../db.ts'
import { isPostgres, prepared } from './prepared.ts'
import { type Cells, type Columns, rowList } from './row-list.ts'

/** The cells of a row, as expressions for a query. */
export type Each<Row> = { readonly [Name in keyof Row]: Expression<Row[Name]> }

/**
 * A `prepared` query that runs for each of some rows, such as the first few children of each; returns all their
 * results. On Postgres that is one round trip. On SQLite, which has no round trip and no lateral join, it runs row by
 * row.
 */
export function preparedForEach<Row extends Cells, O>(
  columns: Columns<Row>,
  build: (
    db: Db,
    row: Each<Row>,
    // biome-ignore lint/suspicious/noExplicitAny: whatever it selects from
  ) => SelectQueryBuilder<any, any, O>,
): (db: Db, rows: readonly Row[]) => Promise<O[]> {
  const asked = rowList(columns)
  const rowOf = (cell: (name: string) => Expression<unknown>) =>
    Object.fromEntries(Object.keys(columns).map((name) => [name, cell(name)])) as Each<Row>
  const one = prepared<Row, O>((db, p) =>
    build(
      db,
      rowOf((name) => sql`${p[name]}`),
    ),
  )
  const all = prepared<{ rows: string }, O>((db, p) => {
    const found = build(
      db,
      rowOf((name) => sql.ref(`asked.${name}`)),
    )
    return db
      .selectFrom(asked.as(p.rows, 'asked'))
      .innerJoinLateral(found.as('found'), (join) => join.onTrue())
      .selectAll('found') as unknown as Compilable<O>
  })
  return async (db, rows) => {
    if (rows.length === 0) return []
    if (isPostgres(db.getExecutor())) return all(db, { rows: asked.of(rows) })
    return (await Promise.all(rows.map((row) => one(db, row)))).flat()
  }
}
