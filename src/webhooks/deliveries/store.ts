import { Problem } from '../../core/errors.ts'
import type { LongPage, LongPageQuery } from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { countOf } from '../../storage/counts.ts'
import { forUpdate, inScope, isNot } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import { readLongPage } from '../../storage/pages.ts'
import type { WebhookDeliveryRow } from '../../storage/tables.ts'
import { lockQueue, reschedule } from '../queues.ts'
import type { DeliveryStatus, FailureClass, WebhookDelivery } from './contract.ts'
import { hintOf } from './rules.ts'

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
  hint: hintOf(row.failure_class as FailureClass | null, row.response_status),
  attempt: row.attempt,
  nextAttemptAt: row.due_at,
  createdAt: row.created_at,
  deliveredAt: row.delivered_at,
})

const deliveriesIn = (db: Db, scope: Scope) =>
  db.selectFrom('webhook_deliveries').where(inScope(scope, 'webhook_deliveries.org_id'))

/** What the index by state holds. */
const isUndelivered = isNot('status', 'delivered')

/** Of one webhook, newest first. */
export async function listDeliveries(
  db: Db,
  scope: Scope,
  webhookId: string,
  query: LongPageQuery & { status?: DeliveryStatus | undefined },
): Promise<LongPage<WebhookDelivery>> {
  const { status } = query
  const found = deliveriesIn(db, scope)
    .where('webhook_id', '=', webhookId)
    .$if(status !== undefined, (q) => q.where('status', '=', status!))
    .$if(status !== undefined && status !== 'delivered', (q) => q.where(isUndelivered))
  return readLongPage(
    found,
    query,
    { by: ['seq'], direction: 'desc', keyOf: ({ sequence }) => [sequence] },
    (q) => q.select(columns),
    read,
  )
}

export type DeadQuery = LongPageQuery & {
  orgId?: string | undefined
  since?: Instant | undefined
  until?: Instant | undefined
}

/** What failed for good, of every webhook, newest first. */
export async function listDead(db: Db, scope: Scope, query: DeadQuery): Promise<LongPage<WebhookDelivery>> {
  const { orgId, since, until } = query
  const found = deliveriesIn(db, scope)
    .where('status', '=', 'failed')
    .where('webhook_id', 'in', (eb) =>
      eb.selectFrom('webhooks').select('webhooks.id').where('webhooks.deleted_at', 'is', null),
    )
    .$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
    .$if(since !== undefined, (q) => q.where('created_at', '>=', since!))
    .$if(until !== undefined, (q) => q.where('created_at', '<', until!))
  return readLongPage(
    found,
    query,
    { by: ['created_at', 'id'], direction: 'desc', keyOf: ({ createdAt, id }) => [createdAt, id] },
    (q) => q.select(columns),
    read,
  )
}

type Which = { webhookId: string; id: string }

const one = (db: Db, scope: Scope, { webhookId, id }: Which) =>
  deliveriesIn(db, scope).select(columns).where('id', '=', id).where('webhook_id', '=', webhookId)

/** @throws not_found, also for a delivery outside the scope or of another webhook */
export async function getDelivery(db: Db, scope: Scope, which: Which): Promise<WebhookDelivery> {
  return found(await one(db, scope, which).executeTakeFirst())
}

/** The same, and nobody else changes it until the transaction ends. @throws not_found */
export async function lockDelivery(db: Db, scope: Scope, which: Which): Promise<WebhookDelivery> {
  return found(await forUpdate(one(db, scope, which)).executeTakeFirst())
}

function found(row: PublicRow | undefined): WebhookDelivery {
  if (!row) throw new Problem('not_found', 'Delivery not found')
  return read(row)
}

/** How many there are in each state. */
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
  const total = await countOf(found)
  const counts = { total, pending: 0, delivered: total, failed: 0, retrying: 0 }
  for (const { status, count } of rows) {
    counts[status as DeliveryStatus] = Number(count)
    counts.delivered -= Number(count)
  }
  return counts
}

/** A delivery that was asked for, with the number that is next; its webhook was found within the scope. */
export async function insertAskedFor(
  db: Db,
  made: {
    id: string
    webhookId: string
    orgId: string
    event: string
    eventId: string
    payload: Record<string, unknown>
    now: Instant
  },
): Promise<void> {
  const { id, webhookId, orgId, event, eventId, payload, now } = made
  const queue = await lockQueue(db, webhookId)
  if (!queue) throw new Problem('not_found', 'Webhook not found')
  const seq = queue.lastSeq + 1
  await db
    .insertInto('webhook_deliveries')
    .values({
      ...{ id, webhook_id: webhookId, org_id: orgId, seq, event, event_id: eventId, event_at: now },
      ...{ payload: JSON.stringify(payload), created_at: now, ...afresh(now) },
    })
    .execute()
  await db
    .updateTable('webhook_queues')
    .set({ last_seq: seq, due_at: now })
    .where('webhook_id', '=', webhookId)
    .execute()
}

/** As before the first attempt, and asked for by a person. */
const afresh = (now: Instant) => ({
  status: 'pending',
  asked_for: 1,
  attempt: 0,
  due_at: now,
  response_status: null,
  response_body: null,
  response_time_ms: null,
  error_message: null,
  failure_class: null,
  delivered_at: null,
  ended_at: null,
})

/** Sends those of these again, from the start, that nothing is going to send; how many they are. */
export async function sendAgain(
  db: Db,
  scope: Scope,
  {
    webhookId,
    ids,
    isActive,
    now,
  }: { webhookId: string; ids: readonly string[]; isActive: boolean; now: Instant },
): Promise<number> {
  if (ids.length === 0) return 0
  const [{ numUpdatedRows }] = (await deliveriesUpdate(db, scope, webhookId)
    .set(afresh(now))
    .where('id', 'in', ids)
    .where('due_at', 'is', null)
    .execute()) as [{ numUpdatedRows: bigint }]
  await reschedule(db, webhookId, { isActive })
  return Number(numUpdatedRows)
}

const deliveriesUpdate = (db: Db, scope: Scope, webhookId: string) =>
  db
    .updateTable('webhook_deliveries')
    .where('webhook_id', '=', webhookId)
    .where(inScope(scope, 'webhook_deliveries.org_id'))

export type Range = {
  since?: Instant | undefined
  until?: Instant | undefined
  status?: 'failed' | 'kept' | 'delivered' | undefined
  after: number
}

/** Those of a webhook that a replay means, in their order. */
export async function findForReplay(
  db: Db,
  scope: Scope,
  webhookId: string,
  { since, until, status, after: seq }: Range,
  limit: number,
): Promise<{ id: string; seq: number }[]> {
  return deliveriesIn(db, scope)
    .select(['id', 'seq'])
    .where('webhook_id', '=', webhookId)
    .where('seq', '>', seq)
    .where('due_at', 'is', null)
    .$if(status !== 'delivered', (q) => q.where(isUndelivered))
    .where((eb) => {
      const failed = eb('status', '=', 'failed')
      // Pending, and yet nothing is going to send it.
      const kept = eb('status', '=', 'pending')
      if (status === undefined) return eb.or([failed, kept])
      return status === 'kept' ? kept : eb('status', '=', status)
    })
    .$if(since !== undefined, (q) => q.where('created_at', '>=', since!))
    .$if(until !== undefined, (q) => q.where('created_at', '<', until!))
    .orderBy('seq')
    .limit(limit)
    .execute()
}
