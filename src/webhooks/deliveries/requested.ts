import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { forUpdate, inScope, rowList } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import { lockQueue, reschedule } from '../queues.ts'
import { deliveriesIn, isLatest, isUndelivered } from './store.ts'

/* Deliveries that a person asks for: a new one, and what ended or was kept, sent again. */

/** A delivery that was asked for, with the number that is next; its webhook was found within the scope. */
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
    /** When it happened; now unless told. */
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
      ...{ id, webhook_id: webhookId, org_id: orgId, seq, event, event_id: eventId, event_at: eventAt },
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

const repeated = rowList<{ id: string; of: string; seq: number }>({ id: 'text', of: 'text', seq: 'bigint' })

/**
 * Sends those of these again, from the start, that nothing is going to send; the ids they go under, in their order. What
 * was tried goes as a new delivery of the same event, and stays in the history as it ended; what was only kept goes as it
 * is. In a replay that was sent again before is left to what was made of it then.
 */
export async function requestAgain(
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
  // Read with the queue in hand: what another replay made a moment ago is there now.
  const found = await asked
    .$if(isReplay, (q) => q.where(isLatest))
    .orderBy('seq')
    .execute()
  const kept = found.filter(({ status }) => !ended.includes(status)).map(({ id }) => id)
  if (kept.length > 0)
    await deliveriesUpdate(db, scope, webhookId).set(afresh(now)).where('id', 'in', kept).execute()
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

/** What happened is copied where it is: it may be long. */
async function insertRepeated(
  db: Db,
  copies: readonly { id: string; of: string; seq: number }[],
  now: Instant,
): Promise<void> {
  const { status, asked_for, attempt, due_at } = afresh(now)
  await db
    .insertInto('webhook_deliveries')
    .columns([
      ...([
        'id',
        'webhook_id',
        'org_id',
        'seq',
        'event',
        'event_id',
        'event_at',
        'payload',
        'retry_of',
      ] as const),
      ...(['status', 'asked_for', 'attempt', 'due_at', 'created_at'] as const),
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

/** The number of the last delivery of a webhook that was found within the scope. */
export async function lastSequence(db: Db, scope: Scope, webhookId: string): Promise<number> {
  const last = await deliveriesIn(db, scope)
    .select('seq')
    .where('webhook_id', '=', webhookId)
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return last?.seq ?? 0
}

/** Those of a webhook that a replay means, in their order, without what was sent again already. */
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
