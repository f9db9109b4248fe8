import type { EventType } from '../core/event-types.ts'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import { prepared } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'

export type Event = {
  /** Events of no organization reach nobody. */
  orgId: string | null
  type: EventType
  /** Plain JSON. */
  data: Record<string, unknown>
}

/** Written only where somebody may want it: an organization without webhooks pays for a look at an index. */
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
 * Says, in the transaction of a change, what happened; webhooks hear of it when that is committed. Gives the id of
 * the event.
 */
export async function emit(db: Db, { orgId, type, data }: Event, now: Instant): Promise<string> {
  const id = newId()
  if (orgId !== null) await insertion(db, { id, orgId, type, data: JSON.stringify(data), now })
  return id
}
