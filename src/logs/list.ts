import type { SelectQueryBuilder } from 'kysely'
import {
  type CursorPage,
  type CursorPageQuery,
  fetchLimit,
  offsetOf,
  sequenceAfter,
  toCursorPage,
} from '../core/page.ts'
import type { Db } from '../storage/open.ts'
import { readCursorPage } from '../storage/query/pages.ts'
import type { Tables } from '../storage/schema/tables.ts'
import { lastSequence } from './sequence.ts'

type LogTable = 'agent_logs' | 'device_event_logs'
type Log = { timestamp: string; id: string; seq: number }

export type LogQuery = CursorPageQuery & { after?: number | undefined }
export type LogPage<L> = CursorPage<L> & { head: number }

/** A page of a device's log entries: newest first, or in order of arrival after a sequence number. */
export async function pageOfLogs<T extends LogTable, L extends Log>(
  db: Db,
  deviceId: string,
  found: SelectQueryBuilder<Tables, T, object>,
  query: LogQuery,
  read: (row: Tables[T]) => L,
): Promise<LogPage<L>> {
  // Read before the entries, so the entries include all up to it.
  const head = await lastSequence(db, deviceId)
  const page = await (query.after === undefined ? newestFirst : inArrivalOrder)(found, query, read)
  return { ...page, head }
}

async function inArrivalOrder<T extends LogTable, L extends Log>(
  found: SelectQueryBuilder<Tables, T, object>,
  query: LogQuery,
  read: (row: Tables[T]) => L,
): Promise<CursorPage<L>> {
  const place = sequenceAfter(query)
  const rows = await (found as unknown as SelectQueryBuilder<Tables, 'agent_logs', object>)
    .selectAll()
    .where('seq', '>', place ?? query.after!)
    .orderBy('seq')
    .limit(fetchLimit(query))
    .offset(place === undefined ? offsetOf(query) : 0)
    .execute()
  const page = rows.map((row) => read(row as unknown as Tables[T]))
  return toCursorPage(page, query, ({ seq }) => [seq], undefined)
}

async function newestFirst<T extends LogTable, L extends Log>(
  found: SelectQueryBuilder<Tables, T, object>,
  query: CursorPageQuery,
  read: (row: Tables[T]) => L,
): Promise<CursorPage<L>> {
  return readCursorPage(
    found,
    query,
    { by: ['timestamp', 'id'], direction: 'desc', keyOf: ({ timestamp, id }) => [timestamp, id] },
    // Both tables have the columns used here.
    (q) => (q as unknown as SelectQueryBuilder<Tables, 'agent_logs', object>).selectAll(),
    (row) => read(row as unknown as Tables[T]),
  )
}
