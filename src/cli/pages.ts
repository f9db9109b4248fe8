import type { Client, RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { listShape, shapeOrEmpty } from './columns.ts'

/** The most rows of one reply. */
const pageSize = 100

export type PageOptions = {
  /** Rows wanted in all. */
  limit?: number | undefined
  page?: number | undefined
  all?: boolean | undefined
}

export type ListReply = Record<string, unknown> & {
  pagination?: { page?: number; limit: number; total?: number; nextCursor?: string | null }
}

/** Whether an entry answers in pages. */
const isPaged = (entry: Endpoint): boolean => 'page' in shapeOrEmpty(entry.query)

/** Whether these options ask for more than one request. */
export const needsSeveralPages = ({ limit, page, all }: PageOptions): boolean =>
  page === undefined && (all === true || (limit ?? 0) > pageSize)

/**
 * Yields reply after reply. Without options it is the default page of the server; a limit above a
 * page's size, and `all`, fetch further pages. The last reply is cut to the limit.
 */
export async function* fetchPages(
  client: Client,
  entry: Endpoint,
  { params = {}, query = {} }: RawInput,
  options: PageOptions,
): AsyncGenerator<{ reply: ListReply; rows: unknown[] }> {
  const { limit, page } = options
  const key = listShape(entry.reply)?.key ?? 'data'
  const ask = async (more: Record<string, unknown>) => {
    const reply = (await client.request(entry, { params, query: { ...query, ...more } })) as ListReply
    return { reply, rows: (reply[key] ?? []) as unknown[] }
  }
  if (!isPaged(entry)) {
    const { reply, rows } = await ask({})
    const from = page !== undefined && limit !== undefined ? (page - 1) * limit : 0
    yield { reply, rows: limit === undefined ? rows : rows.slice(from, from + limit) }
    return
  }
  if (!needsSeveralPages(options)) {
    yield await ask({ ...(page !== undefined && { page }), ...(limit !== undefined && { limit }) })
    return
  }
  let left = limit ?? Number.POSITIVE_INFINITY
  let next: Record<string, unknown> = { page: 1 }
  while (left > 0) {
    const { reply, rows } = await ask({ ...next, limit: pageSize })
    yield { reply, rows: rows.slice(0, left) }
    left -= rows.length
    const { limit = pageSize, nextCursor } = reply.pagination ?? {}
    // Lists with cursors are continued by cursor, others by page number.
    if (nextCursor === null || (nextCursor === undefined && rows.length < limit)) return
    next = nextCursor === undefined ? { page: Number(next.page) + 1 } : { cursor: nextCursor }
  }
}

/** Every row, one after the other. */
export async function* fetchAllRows(client: Client, entry: Endpoint, query: Record<string, unknown> = {}) {
  for await (const { rows } of fetchPages(client, entry, { query }, { all: true })) yield* rows
}
