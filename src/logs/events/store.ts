import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { checkDevice } from '../../devices/records.ts'
import type { Db } from '../../storage/open.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { DeviceEventLogRow } from '../../storage/schema/tables.ts'
import { insertLogs } from '../insert.ts'
import { type LogPage, type LogQuery, pageOfLogs } from '../list.ts'
import type { EventLog } from './contract.ts'

const eventRows = rowsOf<DeviceEventLogRow>()({ json: ['details'] })

export const toEventLog = (row: DeviceEventLogRow) => eventRows.read(row) as EventLog

export type EventQuery = LogQuery & {
  category?: string | undefined
  level?: string[] | undefined
  source?: string | undefined
  startDate?: Instant | undefined
  endDate?: Instant | undefined
}

/**
 * Newest first, or in order of arrival after a sequence number.
 * @throws not_found, also for a device outside the scope
 */
export async function listEventLogs(
  db: Db,
  scope: Scope,
  deviceId: string,
  query: EventQuery,
): Promise<LogPage<EventLog>> {
  const { category, level, source, startDate, endDate } = query
  await checkDevice(db, scope, deviceId)
  const found = db
    .selectFrom('device_event_logs')
    .where('device_id', '=', deviceId)
    .$if(category !== undefined, (q) => q.where('category', '=', category!))
    .$if(level !== undefined, (q) => q.where('level', 'in', level!))
    .$if(source !== undefined, (q) => q.where('source', '=', source!))
    .$if(startDate !== undefined, (q) => q.where('timestamp', '>=', startDate!))
    .$if(endDate !== undefined, (q) => q.where('timestamp', '<', endDate!))
  return pageOfLogs(db, deviceId, found, query, toEventLog)
}

/** Returns the ids of the new ones: a record that was submitted before is not changed. */
export async function insertEventLogs(db: Db, events: readonly EventLog[]): Promise<Set<string>> {
  const insert = (some: readonly EventLog[]) =>
    db
      .insertInto('device_event_logs')
      .values(some.map((event) => eventRows.write(event)))
      .onConflict((conflict) => conflict.doNothing())
      .returning('id')
      .execute()
  const inserted = await insertLogs(db, events, insert, (event, message) => ({
    ...event,
    source: 'service',
    eventId: null,
    message,
    details: null,
  }))
  return new Set(inserted.flat().map(({ id }) => id))
}
