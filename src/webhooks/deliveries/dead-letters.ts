import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { getSummary } from '../store.ts'
import { insertRequested } from './requested.ts'

/** An event that a webhook was not told of, as it was set aside; without data where the database did not take that. */
type Untold = { webhookId: string; id: string; type: string; created_at: Instant; data?: string }

/**
 * Makes the delivery after all. Gives its id.
 * @throws not_found where the webhook is gone, conflict where not all of the event was kept
 */
export async function deliverDeadLetter(db: Db, scope: Scope, { entry }: { entry: string }, now: Instant) {
  const { webhookId, id: eventId, type: event, created_at: eventAt, data } = JSON.parse(entry) as Untold
  if (data === undefined) throw new Problem('conflict', 'Only its id could be kept: there is nothing to send')
  const { orgId } = await getSummary(db, scope, webhookId)
  const payload = JSON.parse(data) as Record<string, unknown>
  const id = newId()
  await insertRequested(db, { id, webhookId, orgId, event, eventId, eventAt, payload, now })
  return { webhookId, deliveryId: id }
}
