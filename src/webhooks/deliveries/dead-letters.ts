import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { getSummary } from '../store.ts'
import { insertRequested } from './requested.ts'

/** The content of a dead letter: an event whose delivery was not created; without data if the database refused that. */
type UndeliveredEvent = { webhookId: string; id: string; type: string; created_at: Instant; data?: string }

/**
 * Queues the delivery of a dead letter. Returns its id. @throws not_found when the webhook was deleted, conflict when
 * only the event's id was stored
 */
export async function deliverDeadLetter(db: Db, scope: Scope, { entry }: { entry: string }, now: Instant) {
  const {
    webhookId,
    id: eventId,
    type: event,
    created_at: eventAt,
    data,
  } = JSON.parse(entry) as UndeliveredEvent
  if (data === undefined) throw new Problem('conflict', 'Only its id was stored: there is nothing to send')
  const { orgId } = await getSummary(db, scope, webhookId)
  const payload = JSON.parse(data) as Record<string, unknown>
  const id = newId()
  await insertRequested(db, { id, webhookId, orgId, event, eventId, eventAt, payload, now })
  return { webhookId, deliveryId: id }
}
