import { z } from 'zod'
import { invalid } from './errors.ts'
import { parseJson } from './json.ts'
import { queryNumber } from './schema.ts'

const number = z.number({ error: 'must be a number' })
const wholeNumber = number.int('must be a whole number')

/** Highest page number: its offset is still a safe integer. */
const maxPages = 1_000_000_000

/** Accepts numbers of any size, also in the exponent form that JavaScript writes for the largest ones. */
const clamped = (max: number) =>
  z
    .preprocess(
      (said) => (/^(\d{16,}|\d(\.\d+)?e\+?\d{2,})$/i.test(String(said)) ? max : said),
      queryNumber(wholeNumber),
    )
    .transform((n) => Math.min(Math.max(1, n), max))

/** `page` and `limit`, clamped rather than refused when out of range. */
export const pageQuery = (limits: { default: number; max: number } = { default: 50, max: 100 }) => ({
  page: clamped(maxPages).prefault(1).describe('Page to show, from 1'),
  limit: clamped(limits.max).prefault(limits.default).describe(`Rows on a page, at most ${limits.max}`),
})

/** The same for a list that may be long: `cursor` continues after a page, at the cost of the first page. */
export const cursorPageQuery = (limits?: { default: number; max: number }) => ({
  ...pageQuery(limits),
  cursor: z.string().max(1024).optional().describe('nextCursor of the page before; instead of page'),
})

/**
 * For a list whose rows have a sequence number (`seq`) in order of arrival: rows after one of them, oldest
 * first.
 */
export const sequenceQuery = (of: string) =>
  queryNumber(wholeNumber.min(0, 'must be at least 0'))
    .optional()
    .describe(`Only entries after this seq ${of}, oldest first`)

/** `true` or `false` in a query string. */
export const flag = z
  .enum(['true', 'false'], { error: 'must be true or false' })
  .transform((text) => text === 'true')

export type PageQuery = { page: number; limit: number }
/** Rows by id, for who reads all of them: the first ones after this id. */
export type IdPage = { after: string | undefined; limit: number }

/** All rows in pages of so many, each read after the one before. */
export async function* pagesById<T extends { id: string }>(
  limit: number,
  read: (page: IdPage) => Promise<readonly T[]>,
): AsyncGenerator<readonly T[]> {
  let after: string | undefined
  for (;;) {
    const found = await read({ limit, after })
    yield found
    if (found.length < limit) return
    after = found.at(-1)!.id
  }
}

export type Page<T> = { data: T[]; pagination: { page: number; limit: number; total: number } }

export const pageOf = <S extends z.ZodType>(item: S) =>
  z.object({
    data: z.array(item),
    pagination: z.object({ page: z.int(), limit: z.int(), total: z.int() }),
  })

/** A page reached by `cursor` has no number, and the total is not counted again. */
export const cursorPageOf = <S extends z.ZodType>(item: S) =>
  z.object({
    data: z.array(item),
    pagination: z.object({
      page: z.int().optional(),
      limit: z.int(),
      total: z.int().optional(),
      nextCursor: z.string().nullable().describe('null at the end of the list'),
    }),
  })

export type CursorPageQuery = PageQuery & { cursor?: string | undefined }
export type CursorPage<T> = {
  data: T[]
  pagination: { page?: number; limit: number; total?: number; nextCursor: string | null }
}

type Key = readonly (string | number)[]

/**
 * The key of the last row of the page before; undefined without a cursor. A cursor is neither secret nor a
 * proof: the rows it leads to are still restricted to the caller's scope. @throws invalid_request when this
 * list did not issue it
 */
export function keyAfter(
  query: Pick<CursorPageQuery, 'cursor'>,
  width: number,
  path = 'query.cursor',
): Key | undefined {
  if (query.cursor === undefined) return undefined
  const key = parsedKey(query.cursor)
  if (key?.length === width) return key
  throw notOurs(path)
}

const notOurs = (path: string) => invalid([{ path, message: 'is not a cursor that this list gave' }])

/** The same for a list ordered by sequence number. */
export function sequenceAfter(query: Pick<CursorPageQuery, 'cursor'>): number | undefined {
  const [place] = keyAfter(query, 1) ?? []
  if (place === undefined || Number.isSafeInteger(place)) return place as number | undefined
  throw notOurs('query.cursor')
}

function parsedKey(cursor: string): Key | undefined {
  const key = parseJson(Buffer.from(cursor, 'base64url'))
  const isText = (part: unknown) =>
    typeof part === 'string' && !part.includes('\u0000') && part.isWellFormed()
  const isPlain = (part: unknown) => isText(part) || typeof part === 'number'
  return Array.isArray(key) && key.every(isPlain) ? key : undefined
}

/** Rows to fetch: one more than the page holds, which tells whether there are more. */
export const fetchLimit = ({ limit }: PageQuery): number => limit + 1

/** A page of the rows fetched with `fetchLimit`; `keyOf` returns the values the list is ordered by. */
export function toCursorPage<T>(
  rows: T[],
  query: CursorPageQuery,
  keyOf: (row: T) => Key,
  total: number | undefined,
): CursorPage<T> {
  const { page, limit, cursor } = query
  const data = rows.slice(0, limit)
  const last = data.at(-1)
  const more = rows.length > limit && last !== undefined
  const nextCursor = more ? Buffer.from(JSON.stringify(keyOf(last))).toString('base64url') : null
  if (cursor !== undefined) return { data, pagination: { limit, nextCursor } }
  return { data, pagination: { page, limit, ...(total !== undefined && { total }), nextCursor } }
}

export const offsetOf = ({ page, limit }: PageQuery): number => (page - 1) * limit

export function toPage<T>(data: T[], total: number, { page, limit }: PageQuery): Page<T> {
  return { data, pagination: { page, limit, total } }
}

/** The total, when the page itself determines it: it is not full, and not beyond the end. */
export function totalFrom(rows: number, query: PageQuery): number | undefined {
  const offset = offsetOf(query)
  return rows < query.limit && (rows > 0 || offset === 0) ? offset + rows : undefined
}
