import type { Cipher } from '../../core/cipher.ts'
import type { Instant } from '../../core/time.ts'
import { prepared } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import type { Outcome, Parcel } from '../deliveries/rules.ts'
import { lockQueue, nextDue } from '../queues.ts'
import { type Held, storedStatus } from '../rules.ts'
import { opened } from '../store.ts'

/* What the service itself does with the deliveries of all tenants. */

const webhookOf = prepared((db, p: { webhookId: string }) =>
  db
    .selectFrom('webhooks')
    .select(['id', 'org_id', 'name', 'url', 'secret', 'previous_secret', 'previous_until', 'headers'])
    .select(['status', 'retry_policy', 'created_by', 'created_at', 'updated_at'])
    .where('id', '=', p.webhookId)
    .where('deleted_at', 'is', null),
)

/** The webhook as it is now; the one that is known, when it did not change. undefined when it is gone. */
export async function findWebhook(
  db: Db,
  cipher: Cipher,
  webhookId: string,
  known: Held | undefined,
): Promise<Held | undefined> {
  const [row] = await webhookOf(db, { webhookId })
  if (!row) return undefined
  const isKnown = known?.updatedAt === row.updated_at && storedStatus(known.status) === row.status
  return isKnown ? known : opened(cipher, { ...row, events: '[]' })
}

const parcelsOf = (db: Db, p: { webhookId: string; now: Instant; limit: number }) =>
  db
    .selectFrom('webhook_deliveries')
    .select(['id', 'webhook_id as webhookId', 'org_id as orgId', 'seq', 'event', 'event_id as eventId'])
    .select(['event_at as eventAt', 'payload', 'attempt'])
    .where('webhook_id', '=', p.webhookId)
    .where('due_at', '<=', p.now)
    .orderBy('due_at')
    .orderBy('seq')
    .limit(p.limit)

const due = prepared((db, p: { webhookId: string; now: Instant; limit: number }) => parcelsOf(db, p))
const dueAskedFor = prepared((db, p: { webhookId: string; now: Instant; limit: number }) =>
  parcelsOf(db, p).where('asked_for', '=', 1),
)

/** What is due, the longest first; of a webhook that is not active only what somebody asked for. */
export const findParcels = (
  db: Db,
  { isActive, ...which }: { webhookId: string; now: Instant; limit: number; isActive: boolean },
): Promise<Parcel[]> => (isActive ? due : dueAskedFor)(db, which)

type Columns = {
  id: string
  before: number
  status: string
  attempt: number
  dueAt: Instant | null
  responseStatus: number | null
  responseBody: string | null
  responseTimeMs: number | null
  errorMessage: string | null
  failureClass: string | null
  deliveredAt: Instant | null
}

/** Only when nobody else has put something down since it was sent. */
const outcomeChange = prepared((db, p: Columns) =>
  db
    .updateTable('webhook_deliveries')
    .set({
      status: p.status,
      attempt: p.attempt,
      due_at: p.dueAt,
      response_status: p.responseStatus,
      response_body: p.responseBody,
      response_time_ms: p.responseTimeMs,
      error_message: p.errorMessage,
      failure_class: p.failureClass,
      delivered_at: p.deliveredAt,
    })
    .where('id', '=', p.id)
    .where('attempt', '=', p.before)
    .where('due_at', 'is not', null),
)

/** Whether it counts: another process may have sent it meanwhile, or its webhook be gone. */
export async function putDown(db: Db, parcel: Parcel, outcome: Outcome): Promise<boolean> {
  const { isUnwanted: _, ...columns } = outcome
  const [{ numUpdatedRows }] = (await outcomeChange(db, {
    ...{ id: parcel.id, before: parcel.attempt },
    ...columns,
  })) as unknown as [{ numUpdatedRows: bigint }]
  return numUpdatedRows > 0n
}

/** The receiver said so; people take it up again. False when it was not active any more. */
export async function failWebhook(db: Db, webhookId: string, now: Instant): Promise<boolean> {
  const [{ numUpdatedRows }] = (await db
    .updateTable('webhooks')
    .set({ status: storedStatus('failed'), updated_at: now })
    .where('id', '=', webhookId)
    .where('status', '=', storedStatus('active'))
    .execute()) as [{ numUpdatedRows: bigint }]
  return numUpdatedRows > 0n
}

/** What the attempts of one webhook add to its counts. */
export type Tally = { successes: number; failures: number; at: Instant; lastSuccessAt: Instant | null }

const counted = prepared((db, p: { webhookId: string; successes: number; failures: number; at: Instant }) =>
  db
    .updateTable('webhook_queues')
    .set((eb) => ({
      success_count: eb('success_count', '+', p.successes),
      failure_count: eb('failure_count', '+', p.failures),
      last_delivery_at: p.at,
    }))
    .where('webhook_id', '=', p.webhookId),
)

const succeeded = prepared((db, p: { webhookId: string; at: Instant }) =>
  db.updateTable('webhook_queues').set({ last_success_at: p.at }).where('webhook_id', '=', p.webhookId),
)

export async function count(db: Db, webhookId: string, tally: Tally): Promise<void> {
  const { successes, failures, at, lastSuccessAt } = tally
  await counted(db, { webhookId, successes, failures, at })
  if (lastSuccessAt !== null) await succeeded(db, { webhookId, at: lastSuccessAt })
}

const release = prepared((db, p: { webhookId: string; dueAt: Instant | null }) =>
  db
    .updateTable('webhook_queues')
    .set({ holder: null, due_at: p.dueAt })
    .where('webhook_id', '=', p.webhookId),
)

/**
 * Gives a queue back, unless something in it is due by now, which is `kept` on with. One that has to make room for
 * others goes behind them. `lost`: another process holds it.
 */
export async function letGo(
  db: Db,
  webhookId: string,
  {
    holder,
    webhook,
    makesRoom,
    now,
  }: { holder: string; webhook: Held | undefined; makesRoom: boolean; now: Instant },
): Promise<'released' | 'kept' | 'lost'> {
  const queue = await lockQueue(db, webhookId)
  if (queue?.holder !== holder) return 'lost'
  const isActive = webhook?.status === 'active'
  const dueAt = webhook ? await nextDue(db, webhookId, { isActive }) : null
  const isDue = dueAt !== null && dueAt <= now
  if (isDue && !makesRoom) return 'kept'
  await release(db, { webhookId, dueAt: isDue ? now : dueAt })
  return 'released'
}
