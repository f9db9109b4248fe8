import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { rowList } from '../../storage/query/row-list.ts'
import { inScope } from '../../storage/query/scope.ts'
import { lockQueue, reschedule } from '../queues.ts'
import { deliveriesIn, isLatest, isUndelivered } from './store.ts'

/* Deliveries requested by a user: new ones, and finished or stored ones sent again. */

/** Inserts a requested delivery with the next sequence number; the caller found the webhook within its scope. */
export async function insertRequested(
  db: Db,
  made: {
    id: string
    webhookId: string
    orgId: string
    event: string
    eventId: string
    payload: Record<string, unknown>
    now: Instant
    /** Time of the event; now by default. */
    eventAt?: Instant
  },
): Promise<void> {
  const { id, webhookId, orgId, event, eventId, payload, now, eventAt = now } = made
  const queue = await lockQueue(db, webhookId)
  if (!queue) throw new Problem('not_found', 'Webhook not found')
  const seq = queue.lastSeq + 1
  await db
    .insertInto('webhook_deliveries')
    .values({
      id,
      webhook_id: webhookId,
      org_id: orgId,
      seq,
      event,
      event_id: eventId,
      event_at: eventAt,
      payload: JSON.stringify(payload),
      created_at: now,
      ...pendingColumns(now),
    })
    .execute()
  await db
    .updateTable('webhook_queues')
    .set({ last_seq: seq, due_at: now })
    .where('webhook_id', '=', webhookId)
    .execute()
}

/** Column values before the first attempt, for a delivery requested by a user. */
const pendingColumns = (now: Instant) => ({
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

const repeated = rowList<{ id: string; of: string; seq: number }>({ id: 'text', of: 'text', seq: 'bigint' })

/**
 * Sends those of these deliveries again that are not scheduled; returns the ids they are sent under, in order. A
 * finished one is copied to a new delivery of the same event, and stays in the history; a stored one is sent itself.
 * A replay skips deliveries that were already sent again.
 */
export async function resendDeliveries(
  db: Db,
  scope: Scope,
  {
    webhookId,
    ids,
    isActive,
    isReplay,
    now,
  }: { webhookId: string; ids: readonly string[]; isActive: boolean; isReplay: boolean; now: Instant },
): Promise<string[]> {
  if (ids.length === 0) return []
  const ended = ['failed', 'delivered']
  const asked = deliveriesIn(db, scope)
    .select(['id', 'status'])
    .where('webhook_id', '=', webhookId)
    .where('id', 'in', ids)
    .where('due_at', 'is', null)
  await forUpdate(asked.orderBy('id')).execute()
  const queue = await lockQueue(db, webhookId)
  if (!queue) throw new Problem('not_found', 'Webhook not found')
  // Read under the lock on the queue: deliveries of a concurrent replay are visible now.
  const found = await asked
    .$if(isReplay, (q) => q.where(isLatest))
    .orderBy('seq')
    .execute()
  const kept = found.filter(({ status }) => !ended.includes(status)).map(({ id }) => id)
  if (kept.length > 0)
    await deliveriesUpdate(db, scope, webhookId).set(pendingColumns(now)).where('id', 'in', kept).execute()
  let seq = queue.lastSeq
  const copies = found
    .filter(({ status }) => ended.includes(status))
    .map(({ id: of }) => ({ id: newId(), of, seq: ++seq }))
  if (copies.length > 0) {
    await insertRepeated(db, copies, now)
    await db
      .updateTable('webhook_queues')
      .set({ last_seq: seq })
      .where('webhook_id', '=', webhookId)
      .execute()
  }
  await reschedule(db, webhookId, { isActive })
  const under = new Map(copies.map(({ of, id }) => [of, id]))
  return found.map(({ id }) => under.get(id) ?? id)
}

/** The payload is copied within the database: it may be long. */
async function insertRepeated(
  db: Db,
  copies: readonly { id: string; of: string; seq: number }[],
  now: Instant,
): Promise<void> {
  const { status, asked_for, attempt, due_at } = pendingColumns(now)
  await db
    .insertInto('webhook_deliveries')
    .columns([
      'id',
      'webhook_id',
      'org_id',
      'seq',
      'event',
      'event_id',
      'event_at',
      'payload',
      'retry_of',
      'status',
      'asked_for',
      'attempt',
      'due_at',
      'created_at',
    ])
    .expression((eb) =>
      eb
        .selectFrom(repeated.as(repeated.of(copies), 'r'))
        .innerJoin('webhook_deliveries as d', 'd.id', 'r.of')
        .select([
          'r.id',
          'd.webhook_id',
          'd.org_id',
          'r.seq',
          'd.event',
          'd.event_id',
          'd.event_at',
          'd.payload',
        ])
        .select('d.id as retry_of')
        .select((one) => [
          one.val(status).as('status'),
          one.lit(asked_for).as('asked_for'),
          one.lit(attempt).as('attempt'),
          one.val(due_at).as('due_at'),
          one.val(now).as('created_at'),
        ]),
    )
    .execute()
}

const deliveriesUpdate = (db: Db, scope: Scope, webhookId: string) =>
  db
    .updateTable('webhook_deliveries')
    .where('webhook_id', '=', webhookId)
    .where(inScope(scope, 'webhook_deliveries.org_id'))

export type ReplayRange = {
  since?: Instant | undefined
  until?: Instant | undefined
  status?: 'failed' | 'kept' | 'delivered' | undefined
  after: number
  through: number
}

/** Sequence of the last delivery of a webhook; the caller found the webhook within its scope. */
export async function lastSequence(db: Db, scope: Scope, webhookId: string): Promise<number> {
  const last = await deliveriesIn(db, scope)
    .select('seq')
    .where('webhook_id', '=', webhookId)
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return last?.seq ?? 0
}

/** The deliveries that a replay selects, in order, without those that were already sent again. */
export async function findForReplay(
  db: Db,
  scope: Scope,
  webhookId: string,
  { since, until, status, after: seq, through }: ReplayRange,
  limit: number,
): Promise<{ id: string; seq: number }[]> {
  return deliveriesIn(db, scope)
    .select(['id', 'seq'])
    .where('webhook_id', '=', webhookId)
    .where('seq', '>', seq)
    .where('seq', '<=', through)
    .where(isLatest)
    .where('due_at', 'is', null)
    .$if(status !== 'delivered', (q) => q.where(isUndelivered))
    .where((eb) => {
      const failed = eb('status', '=', 'failed')
      // Pending but not scheduled.
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
