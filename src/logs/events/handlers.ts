import { newId } from '../../core/new-id.ts'
import type { HandlersOf } from '../../handler.ts'
import { dated } from '../rules.ts'
import type * as contract from './contract.ts'
import { insertEventLogs, listEventLogs } from './store.ts'

export const eventLogs: HandlersOf<typeof contract.eventLogs> = {
  async submit({ db, caller: { deviceId, orgId, device }, body: { events }, now, note }) {
    const entries = events.map(({ timestamp: said, details: given = null, eventId = null, ...event }) => {
      const { timestamp, data: details } = dated(said, given, now)
      return { id: newId(), deviceId, orgId, ...event, eventId, timestamp, details, createdAt: now }
    })
    const count = await insertEventLogs(db, entries)
    // The entries themselves are where they belong; the audit log tells that they came.
    note({ resourceId: deviceId, resourceName: device.hostname, after: { received: events.length, count } })
    return { success: true, count }
  },

  // A device may have logged very much.
  list: ({ storage, scope, params, query }) => listEventLogs(storage.heavy, scope, params.id, query),
}
