import { type RawBuilder, sql } from 'kysely'
import type { AnyDb } from '../columns.ts'
import type { Db } from '../db.ts'
import { bytesOf } from '../query/expressions.ts'
import type { TableShape } from './catalog.ts'

export type Cell = string | number | null

/** Rows after one key, up to and with another. */
export type KeyRange = { after?: readonly Cell[] | undefined; upTo?: readonly Cell[] | undefined }

/** Bytes of texts in a page, unless one row alone has more. */
const pageBytes = 2 ** 18
const pageRows = 500

/**
 * The rows of a table in the order of its primary key, in pages, each row with its columns by name. The sizes of the next rows are
 * asked for first, so that a page of large rows has few of them.
 */
export async function* rowPages(db: Db, table: TableShape, range: KeyRange = {}): AsyncGenerator<Cell[][]> {
  const { name, columns, key } = table
  const names = columns.map((column) => column.name)
  const texts = columns.filter(({ kind }) => kind === 'text').map((column) => column.name)
  const order = sql.join(key.map((column) => sql.id(column)))
  let { after } = range
  for (;;) {
    const next = (db as AnyDb)
      .selectFrom(name)
      .where(inRange(table, { ...range, after }))
      .orderBy(order)
    const sizes = await next
      .select((texts.length > 0 ? bytesOf(texts, 1) : sql<number>`1`).as('size'))
      .limit(pageRows)
      .execute()
    if (sizes.length === 0) return
    const rows = await next
      .select(names)
      .limit(fitting(sizes.map(({ size }) => Number(size))))
      .execute()
    const page = rows.map((row) => names.map((column) => row[column] as Cell))
    // Outside a snapshot they may be gone since their sizes were read.
    if (page.length === 0) continue
    yield page
    after = keyOf(table, page.at(-1)!)
  }
}

/** The primary key of a row. */
export const keyOf = ({ columns, key }: TableShape, row: readonly Cell[]): Cell[] =>
  key.map((column) => row[columns.findIndex(({ name }) => name === column)]!)

/** Texts are ordered by their bytes on both databases. */
export function inRange({ key }: TableShape, { after, upTo }: KeyRange): RawBuilder<boolean> {
  const order = sql.join(key.map((column) => sql.id(column)))
  const list = (cells: readonly Cell[]) => sql.join(cells.map((cell) => sql`${cell}`))
  const bounds = [
    ...(after === undefined ? [] : [sql`(${order}) > (${list(after)})`]),
    ...(upTo === undefined ? [] : [sql`(${order}) <= (${list(upTo)})`]),
  ]
  return bounds.length === 0 ? sql<boolean>`1 = 1` : sql<boolean>`${sql.join(bounds, sql` and `)}`
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
