import type { SelectQueryBuilder } from 'kysely'
import {
  keyAfter,
  type LongPage,
  type LongPageQuery,
  offsetOf,
  rowsAsked,
  toLongPage,
  totalFrom,
} from '../core/page.ts'
import { countOf } from '../storage/counts.ts'
import { after } from '../storage/dialect.ts'
import type { Tables } from '../storage/tables.ts'

type LogTable = 'agent_logs' | 'device_event_logs'

/** A page of what was found in a table of logs, newest first. */
export async function newestFirst<T extends LogTable, L extends { timestamp: string; id: string }>(
  found: SelectQueryBuilder<Tables, T, object>,
  query: LongPageQuery,
  read: (row: Tables[T]) => L,
): Promise<LongPage<L>> {
  const key = keyAfter(query, 2)
  // The tables are alike in what is said of them here.
  const logs = found as unknown as SelectQueryBuilder<Tables, 'agent_logs', object>
  const rows = await logs
    .selectAll()
    .$if(key !== undefined, (q) => q.where(after(['timestamp', 'id'], key!, 'desc')))
    .orderBy('timestamp', 'desc')
    .orderBy('id', 'desc')
    .limit(rowsAsked(query))
    .offset(key === undefined ? offsetOf(query) : 0)
    .execute()
  const shown = Math.min(rows.length, query.limit)
  const total = key ? undefined : (totalFrom(shown, query) ?? (await countOf(logs)))
  const page = rows.map((row) => read(row as unknown as Tables[T]))
  return toLongPage(page, query, ({ timestamp, id }) => [timestamp, id], total)
}
