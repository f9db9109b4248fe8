import type { ExpressionBuilder } from 'kysely'
import { Problem } from '../../core/errors.ts'
import type { CursorPage, CursorPageQuery } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { notEqualsText } from '../../storage/query/expressions.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { readCursorPage } from '../../storage/query/pages.ts'
import { inScope } from '../../storage/query/scope.ts'
import type { Tables, WebhookDeliveryRow } from '../../storage/schema/tables.ts'
import type { DeliveryStatus, FailureClass, WebhookDelivery } from './contract.ts'
import { failureHint } from './rules.ts'

const columns = [
  'id',
  'webhook_id',
  'org_id',
  'seq',
  'event',
  'event_id',
  'payload',
  'status',
  'attempt',
  'due_at',
  'response_status',
  'response_body',
  'response_time_ms',
  'error_message',
  'failure_class',
  'retry_of',
  'created_at',
  'delivered_at',
] as const

type PublicRow = Pick<WebhookDeliveryRow, (typeof columns)[number]>

const read = (row: PublicRow): WebhookDelivery => ({
  id: row.id,
  webhookId: row.webhook_id,
  orgId: row.org_id,
  sequence: row.seq,
  status: row.status as DeliveryStatus,
  event: row.event,
  eventId: row.event_id,
  payload: JSON.parse(row.payload) as Record<string, unknown>,
  responseStatus: row.response_status,
  responseBody: row.response_body,
  responseTimeMs: row.response_time_ms,
  errorMessage: row.error_message,
  failureClass: row.failure_class as FailureClass | null,
  hint: failureHint(row.failure_class as FailureClass | null, row.response_status),
  attempt: row.attempt,
  nextAttemptAt: row.due_at,
  retryOf: row.retry_of,
  createdAt: row.created_at,
  deliveredAt: row.delivered_at,
})

export const deliveriesIn = (db: Db, scope: Scope) =>
  db.selectFrom('webhook_deliveries').where(inScope(scope, 'webhook_deliveries.org_id'))

/** Matches the condition of the partial index by status. */
export const isUndelivered = notEqualsText('status', 'delivered')

/** The delivery was not sent again as another one; exact only under the lock on the queue. */
export const isLatest = (eb: ExpressionBuilder<Tables, 'webhook_deliveries'>) =>
  eb.not(
    eb.exists(
      eb
        .selectFrom('webhook_deliveries as later')
        .select('later.id')
        .whereRef('later.retry_of', '=', 'webhook_deliveries.id'),
    ),
  )

/** Of one webhook, newest first. */
export async function listDeliveries(
  db: Db,
  scope: Scope,
  webhookId: string,
  query: CursorPageQuery & { status?: DeliveryStatus | undefined },
): Promise<CursorPage<WebhookDelivery>> {
  const { status } = query
  const found = deliveriesIn(db, scope)
    .where('webhook_id', '=', webhookId)
    .$if(status !== undefined, (q) => q.where('status', '=', status!))
    .$if(status !== undefined && status !== 'delivered', (q) => q.where(isUndelivered))
  return readCursorPage(
    found,
    query,
    { by: ['seq'], direction: 'desc', keyOf: ({ sequence }) => [sequence] },
    (q) => q.select(columns),
    read,
  )
}

/** How many deliveries are still to be sent, counting at most `max`. */
export const countWaiting = (db: Db, scope: Scope, max: number): Promise<number> => {
  const some = deliveriesIn(db, scope)
    .select('id')
    .where('status', 'in', ['pending', 'retrying'])
    .where(isUndelivered)
    .limit(max)
  return countRowsOf(db.selectFrom(some.as('waiting')))
}

export type FailedDeliveryQuery = CursorPageQuery & {
  orgId?: string | undefined
  since?: Instant | undefined
  until?: Instant | undefined
}

/** Permanently failed deliveries that nobody sent again, of every webhook, newest first. */
export async function listFailedDeliveries(
  db: Db,
  scope: Scope,
  query: FailedDeliveryQuery,
): Promise<CursorPage<WebhookDelivery>> {
  const { orgId, since, until } = query
  const found = deliveriesIn(db, scope)
    .where('status', '=', 'failed')
    .where(isLatest)
    .where('webhook_id', 'in', (eb) =>
      eb.selectFrom('webhooks').select('webhooks.id').where('webhooks.deleted_at', 'is', null),
    )
    .$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
    .$if(since !== undefined, (q) => q.where('created_at', '>=', since!))
    .$if(until !== undefined, (q) => q.where('created_at', '<', until!))
  return readCursorPage(
    found,
    query,
    { by: ['created_at', 'id'], direction: 'desc', keyOf: ({ createdAt, id }) => [createdAt, id] },
    (q) => q.select(columns),
    read,
  )
}

type Which = { webhookId: string; id: string }

const one = (db: Db, scope: Scope, { webhookId, id }: Which) =>
  deliveriesIn(db, ofOne(scope)).select(columns).where('id', '=', id).where('webhook_id', '=', webhookId)

/** @throws not_found, also for a delivery outside the scope or of another webhook */
export async function getDelivery(db: Db, scope: Scope, which: Which): Promise<WebhookDelivery> {
  return readOrThrow(await one(db, scope, which).executeTakeFirst())
}

/** The same, locked until the transaction ends. @throws not_found */
export async function lockDelivery(db: Db, scope: Scope, which: Which): Promise<WebhookDelivery> {
  return readOrThrow(await forUpdate(one(db, scope, which)).executeTakeFirst())
}

function readOrThrow(row: PublicRow | undefined): WebhookDelivery {
  if (!row) throw new Problem('not_found', 'Delivery not found')
  return read(row)
}

/** Deliveries of a webhook that are still to be made. */
export const countWaitingDeliveries = (db: Db, scope: Scope, webhookId: string): Promise<number> =>
  countRowsOf(
    deliveriesIn(db, scope)
      .where('webhook_id', '=', webhookId)
      .where('status', 'in', ['pending', 'retrying'])
      .where(isUndelivered),
  )

/** Number of deliveries in each state. */
export async function countDeliveries(
  db: Db,
  scope: Scope,
  webhookId: string,
): Promise<Record<'total' | DeliveryStatus, number>> {
  const found = deliveriesIn(db, scope).where('webhook_id', '=', webhookId)
  const rows = await found
    .select((eb) => ['status', eb.fn.countAll<number>().as('count')])
    .where(isUndelivered)
    .groupBy('status')
    .execute()
  const total = await countRowsOf(found)
  const counts = { total, pending: 0, delivered: total, failed: 0, retrying: 0 }
  for (const { status, count } of rows) {
    counts[status as DeliveryStatus] = Number(count)
    counts.delivered -= Number(count)
  }
  return counts
}
