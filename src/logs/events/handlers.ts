import { hash } from 'node:crypto'
import { newId } from '../../core/new-id.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { placed } from '../places.ts'
import { redacted, redactedData } from '../redaction.ts'
import { dated } from '../rules.ts'
import type * as contract from './contract.ts'
import { insertEventLogs, listEventLogs } from './store.ts'

type Logs = typeof contract.eventLogs
type Unplaced = Omit<contract.EventLog, 'seq'>[]

/** An empty id is that of many. One whose end is cut would be taken for another: the hash of a long one stays. */
function knownBy(eventId: string | null): string | null {
  if (eventId === null || eventId === '') return null
  return eventId.length <= 100 ? eventId : `sha256:${hash('sha256', eventId, 'hex')}`
}

export const eventLogs: HandlersOf<Logs> = {
  submit: inSteps<Logs['submit'], Unplaced>({
    // Nobody else waits meanwhile.
    async prepare({ caller: { deviceId, orgId }, body: { events }, now, limit }) {
      limit('EVENT_LOGS', deviceId, events.length)
      return events.map(({ timestamp: said, details: given = null, eventId = null, message, ...event }) => {
        const { timestamp, data } = dated(said, given, now)
        return {
          id: newId(),
          deviceId,
          orgId,
          ...event,
          eventId: knownBy(eventId),
          timestamp,
          message: redacted(message),
          details: redactedData(data),
          createdAt: now,
        }
      })
    },
    async run({ db, caller: { deviceId, device }, note }, events) {
      const count = await insertEventLogs(db, await placed(db, deviceId, events))
      // The entries themselves are where they belong; the audit log tells that they came.
      note({ resourceId: deviceId, resourceName: device.hostname, after: { received: events.length, count } })
      return { success: true, count }
    },
  }),

  // A device may have logged very much.
  list: ({ storage, scope, params, query }) => listEventLogs(storage.heavy, scope, params.id, query),
}
