import {
  keyAfter,
  type LongPage,
  type LongPageQuery,
  offsetOf,
  rowsAsked,
  toLongPage,
  totalFrom,
} from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { checkDevice } from '../../devices/records.ts'
import { countOf } from '../../storage/counts.ts'
import { after } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import { rowsOf } from '../../storage/rows.ts'
import type { DeviceEventLogRow } from '../../storage/tables.ts'
import type { EventLog } from './contract.ts'

const eventRows = rowsOf<DeviceEventLogRow>()({ json: ['details'] })

export type EventQuery = LongPageQuery & {
  category?: string | undefined
  level?: string | undefined
  source?: string | undefined
  startDate?: Instant | undefined
  endDate?: Instant | undefined
}

/** Newest first. @throws not_found, also for a device outside the scope */
export async function listEventLogs(
  db: Db,
  scope: Scope,
  deviceId: string,
  query: EventQuery,
): Promise<LongPage<EventLog>> {
  const { category, level, source, startDate, endDate } = query
  await checkDevice(db, scope, deviceId)
  const found = db
    .selectFrom('device_event_logs')
    .where('device_id', '=', deviceId)
    .$if(category !== undefined, (q) => q.where('category', '=', category!))
    .$if(level !== undefined, (q) => q.where('level', '=', level!))
    .$if(source !== undefined, (q) => q.where('source', '=', source!))
    .$if(startDate !== undefined, (q) => q.where('timestamp', '>=', startDate!))
    .$if(endDate !== undefined, (q) => q.where('timestamp', '<', endDate!))
  const key = keyAfter(query, 2)
  const rows = await found
    .selectAll()
    .$if(key !== undefined, (q) => q.where(after(['timestamp', 'id'], key!, 'desc')))
    .orderBy('timestamp', 'desc')
    .orderBy('id', 'desc')
    .limit(rowsAsked(query))
    .offset(key === undefined ? offsetOf(query) : 0)
    .execute()
  const shown = Math.min(rows.length, query.limit)
  const total = key ? undefined : (totalFrom(shown, query) ?? (await countOf(found)))
  const events = rows.map((row) => eventRows.read(row) as EventLog)
  return toLongPage(events, query, ({ timestamp, id }) => [timestamp, id], total)
}

const group = 100

/** How many were new: a record that was handed in before is left as it is. */
export async function insertEventLogs(db: Db, events: readonly EventLog[]): Promise<number> {
  let count = 0
  for (let at = 0; at < events.length; at += group) {
    const rows = events.slice(at, at + group).map((event) => eventRows.write(event))
    const done = await db
      .insertInto('device_event_logs')
      .values(rows)
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirstOrThrow()
    count += Number(done.numInsertedOrUpdatedRows)
  }
  return count
}
