import { type RawBuilder, sql } from 'kysely'
import type { AnyDb } from '../columns.ts'
import type { Db } from '../db.ts'
import type { TableShape } from './catalog.ts'

export type Cell = string | number | null

/** What a page should hold: the number of its rows follows the size of those before. */
const pageBytes = 2 ** 18
const most = 500

/**
 * All rows of a table in the order of its primary key, in pages, each row with its columns by name. `sizeOf` is asked for the
 * bytes of each page, so that a page of large rows has few of them.
 */
export async function* rowPages(
  db: Db,
  { name, columns, key }: TableShape,
  sizeOf: (page: readonly Cell[][]) => number,
): AsyncGenerator<Cell[][]> {
  const names = columns.map((column) => column.name)
  const places = key.map((column) => names.indexOf(column))
  const order = sql.join(key.map((column) => sql.id(column)))
  let after: RawBuilder<unknown> | undefined
  let limit = 50
  for (;;) {
    const query = (db as AnyDb)
      .selectFrom(name)
      .select(names)
      .$if(after !== undefined, (q) => q.where(sql<boolean>`(${order}) > (${after!})`))
      .orderBy(order)
      .limit(limit)
    const rows = await query.execute()
    if (rows.length === 0) return
    const page = rows.map((row) => names.map((column) => row[column] as Cell))
    const size = sizeOf(page)
    yield page
    if (rows.length < limit) return
    after = sql.join(places.map((place) => sql`${page.at(-1)![place]}`))
    const fitting = Math.floor((pageBytes * rows.length) / Math.max(1, size))
    limit = Math.max(1, Math.min(most, 2 * limit, fitting))
  }
}
