import type { Scope } from '../../core/scope.ts'
import type { Db } from '../../storage/open.ts'
import type { DeliveryContent } from '../deliveries/rules.ts'
import { deliveriesIn } from '../deliveries/store.ts'

/** The next deliveries of a webhook in order, whatever became of them. */
export const findToRelay = (
  db: Db,
  scope: Scope,
  { webhookId, after, limit }: { webhookId: string; after: number; limit: number },
): Promise<DeliveryContent[]> =>
  deliveriesIn(db, scope)
    .select([
      'id',
      'org_id as orgId',
      'seq',
      'event',
      'event_id as eventId',
      'event_at as eventAt',
      'payload',
    ])
    .where('webhook_id', '=', webhookId)
    .where('seq', '>', after)
    .orderBy('seq')
    .limit(limit)
    .execute()
