import { type RawBuilder, sql } from 'kysely'
import type { AnyDb } from '../columns.ts'
import type { Db } from '../db.ts'
import { bytesOf } from '../dialect.ts'
import type { TableShape } from './catalog.ts'

export type Cell = string | number | null

/** Bytes of texts in a page, unless one row alone has more. */
const pageBytes = 2 ** 18
const most = 500

/**
 * All rows of a table in the order of its primary key, in pages, each row with its columns by name. The sizes of the next rows are
 * asked for first, so that a page of large rows has few of them.
 */
export async function* rowPages(db: Db, { name, columns, key }: TableShape): AsyncGenerator<Cell[][]> {
  const names = columns.map((column) => column.name)
  const texts = columns.filter(({ kind }) => kind === 'text').map((column) => column.name)
  const places = key.map((column) => names.indexOf(column))
  const order = sql.join(key.map((column) => sql.id(column)))
  let after: RawBuilder<unknown> | undefined
  for (;;) {
    const next = (db as AnyDb)
      .selectFrom(name)
      .$if(after !== undefined, (q) => q.where(sql<boolean>`(${order}) > (${after!})`))
      .orderBy(order)
    const sizes = await next
      .select((texts.length > 0 ? bytesOf(texts, 1) : sql<number>`1`).as('size'))
      .limit(most)
      .execute()
    if (sizes.length === 0) return
    const rows = await next
      .select(names)
      .limit(fitting(sizes.map(({ size }) => Number(size))))
      .execute()
    const page = rows.map((row) => names.map((column) => row[column] as Cell))
    yield page
    after = sql.join(places.map((place) => sql`${page.at(-1)![place]}`))
  }
}

/** How many of the first rows fit into a page; at least one. */
function fitting(sizes: readonly number[]): number {
  let bytes = 0
  const over = sizes.findIndex((size) => {
    bytes += size
    return bytes > pageBytes
  })
  return over === -1 ? sizes.length : Math.max(1, over)
}
