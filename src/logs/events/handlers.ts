import { hash } from 'node:crypto'
import { newId } from '../../core/new-id.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import type { LogQuota } from '../quota.ts'
import { redactData, redactText } from '../redaction.ts'
import { withPlausibleTime } from '../rules.ts'
import { subtractBytes, withSequence } from '../sequence.ts'
import { sizeOf } from '../sizes.ts'
import type * as contract from './contract.ts'
import { insertEventLogs, listEventLogs } from './store.ts'

type Logs = typeof contract.eventLogs
type Unplaced = { logs: Omit<contract.EventLog, 'seq'>[]; sizes: number[]; bytes: number }

/**
 * An empty id counts as none, since many events share it. A long id is stored as its hash: truncated it could
 * equal another.
 */
function knownBy(eventId: string | null): string | null {
  if (eventId === null || eventId === '') return null
  return eventId.length <= 100 ? eventId : `sha256:${hash('sha256', eventId, 'hex')}`
}

export const eventLogHandlers = (quota: LogQuota): HandlersOf<Logs> => ({
  submit: inSteps<Logs['submit'], Unplaced>({
    // Runs before the transaction, so no other writer waits.
    async prepare({ caller: { deviceId, orgId }, body: { events }, now, limit }) {
      limit('EVENT_LOGS', deviceId, events.length)
      const logs = events.map(
        ({ timestamp: reported, details: given = null, eventId = null, message, ...event }) => {
          const { timestamp, data } = withPlausibleTime(reported, given, now)
          return {
            id: newId(),
            deviceId,
            orgId,
            ...event,
            eventId: knownBy(eventId),
            timestamp,
            message: redactText(message),
            details: redactData(data),
            createdAt: now,
          }
        },
      )
      const sizes = logs.map(({ message, details, source, eventId }) =>
        sizeOf(details, message, source, eventId),
      )
      const bytes = sizes.reduce((sum, size) => sum + size, 0)
      quota.applyRateLimit({ deviceId, orgId }, logs.length, () => limit('LOG_BYTES', deviceId, bytes))
      return { logs, sizes, bytes }
    },
    async run({ db, caller, note }, unplaced) {
      const { deviceId, device } = caller
      const { logs, sizes } = unplaced
      const kept = await insertEventLogs(db, await withSequence(db, caller, unplaced, quota))
      const again = logs.reduce((sum, { id }, n) => (kept.has(id) ? sum : sum + sizes[n]!), 0)
      if (again > 0) await subtractBytes(db, { id: deviceId, bytes: again })
      const count = kept.size
      // The audit log only records that entries arrived, not the entries.
      note({ resourceId: deviceId, resourceName: device.hostname, after: { received: logs.length, count } })
      return { success: true, count }
    },
  }),

  // A device may have very many events.
  list: ({ readQuery, scope, params, query }) =>
    readQuery((on) => listEventLogs(on, scope, params.id, query)),
})
