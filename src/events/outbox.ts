import type { EventType } from '../core/event-types.ts'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { prepared } from '../storage/query/prepared.ts'
import { currentTrace } from '../storage/trace.ts'

export type Event = {
  /** Events without an organization are dropped. */
  orgId: string | null
  type: EventType
  /** Plain JSON. */
  data: Record<string, unknown>
}

/** Inserts the event only if the organization has a webhook: others pay for one index lookup. */
const insertion = prepared((db, p: { id: string; orgId: string; type: string; data: string; now: Instant }) =>
  db
    .insertInto('events')
    .columns(['id', 'org_id', 'type', 'data', 'created_at'])
    .expression((eb) =>
      eb
        .selectFrom('webhooks')
        .select((one) => [
          one.val(p.id).as('id'),
          'webhooks.org_id',
          one.val(p.type).as('type'),
          one.val(p.data).as('data'),
          one.val(p.now).as('created_at'),
        ])
        .where('webhooks.org_id', '=', p.orgId)
        .where('webhooks.deleted_at', 'is', null)
        .limit(1),
    ),
)

/**
 * Records an event in the transaction of the change that causes it; webhooks receive it after the commit. Returns the
 * id of the event.
 */
export async function emit(db: Db, { orgId, type, data }: Event, now: Instant): Promise<string> {
  const id = newId()
  if (orgId === null) return id
  const [made] = await insertion(db, { id, orgId, type, data: JSON.stringify(data), now })
  if (made?.numInsertedOrUpdatedRows) currentTrace()?.published({ id, type, orgId })
  return id
}
