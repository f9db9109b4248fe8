import { type SelectQueryBuilder, sql } from 'kysely'
import {
  type CursorPage,
  type CursorPageQuery,
  fetchLimit,
  type IdPage,
  keyAfter,
  offsetOf,
  type Page,
  type PageQuery,
  toCursorPage,
  toPage,
  totalFrom,
} from '../../core/page.ts'
import { countRowsOf } from './counts.ts'
import { after } from './expressions.ts'

type Found<DB, TB extends keyof DB> = SelectQueryBuilder<DB, TB, object>

/** The part of a query for rows that paging needs. */
type Listing<Row> = {
  limit(rows: number): Listing<Row>
  offset(rows: number): Listing<Row>
  execute(): Promise<Row[]>
}

/**
 * A page of a query that has not selected anything yet: `list` selects and orders. The total is counted only if the
 * page does not reveal it.
 */
export async function readPage<DB, TB extends keyof DB, Row, T>(
  found: Found<DB, TB>,
  page: PageQuery,
  list: (found: Found<DB, TB>) => Listing<Row>,
  read: (row: Row) => T,
): Promise<Page<T>> {
  const rows = await list(found).limit(page.limit).offset(offsetOf(page)).execute()
  const total = totalFrom(rows.length, page) ?? (await countRowsOf(found))
  return toPage(
    rows.map((row) => read(row)),
    total,
    page,
  )
}

/** Rows of a query that has not selected anything yet, by id. */
export function readById<DB, TB extends keyof DB, Row>(
  found: Found<DB, TB>,
  id: string,
  { after: last, limit }: IdPage,
  select: (found: Found<DB, TB>) => Listing<Row>,
): Promise<Row[]> {
  const behind = last === undefined ? found : found.where(after([id], [last]))
  return select(behind.orderBy(sql.ref(id)))
    .limit(limit)
    .execute()
}

/** Columns that together identify one row: a list is ordered by all of them, in one direction. */
type Order<T> = {
  by: readonly [string, ...string[]]
  direction?: 'asc' | 'desc'
  /** Their values in a listed item. */
  keyOf: (item: T) => readonly (string | number)[]
}

/** The same for a list that may be long: by page number, or after the row that a cursor names. */
export async function readCursorPage<DB, TB extends keyof DB, Row, T>(
  found: Found<DB, TB>,
  query: CursorPageQuery,
  { by, direction = 'asc', keyOf }: Order<T>,
  select: (found: Found<DB, TB>) => Listing<Row>,
  read: (row: Row) => T,
): Promise<CursorPage<T>> {
  const key = keyAfter(query, by.length)
  const behind = key === undefined ? found : found.where(after(by, key, direction))
  const ordered = by.reduce((list, column) => list.orderBy(sql.ref(column), direction), behind)
  const rows = await select(ordered)
    .limit(fetchLimit(query))
    .offset(key === undefined ? offsetOf(query) : 0)
    .execute()
  const count = Math.min(rows.length, query.limit)
  const total = key === undefined ? (totalFrom(count, query) ?? (await countRowsOf(found))) : undefined
  return toCursorPage(
    rows.map((row) => read(row)),
    query,
    keyOf,
    total,
  )
}
