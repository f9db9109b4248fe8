import { newId } from '../../core/new-id.ts'
import type { Instant } from '../../core/time.ts'
import { forUpdate, prepared } from '../../storage/dialect.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { WebhookDeliveryRow } from '../../storage/tables.ts'
import { storedStatus } from '../rules.ts'

/** Events looked at, and deliveries made, in one transaction. */
const batch = 200

/** What one transaction gave out. */
export type GivenOut = {
  /** Webhooks that have something to send now. */
  webhookIds: string[]
  /** Whether there may be more to give out. */
  more: boolean
}

/**
 * Makes a delivery for every webhook that asked for what happened, numbered webhook by webhook without gaps. One
 * that is paused or has failed keeps it until somebody asks for it. Several processes may do so at once.
 */
export async function giveOut(storage: Storage, now: Instant): Promise<GivenOut> {
  // Lost with the power it is done again, with the same events.
  return storage.write((tx) => giveOutSome(tx, now), { unsynced: true })
}

const anyEvent = prepared((db, _: Record<never, string>) => db.selectFrom('events').select('seq').limit(1))

/** Asked very often, so that there is a write only when there is something to give out. */
export const hasHappened = async (db: Db): Promise<boolean> => (await anyEvent(db, {})).length > 0

const pending = prepared((db, p: { batch: number }) =>
  forUpdate(
    db
      .selectFrom('events')
      .select(['seq', 'id', 'org_id', 'type', 'data', 'created_at', 'given_to'])
      .orderBy('seq')
      .limit(p.batch),
    { skipLocked: true },
  ),
)

type Listener = { id: string; status: string }

const listeners = prepared((db, p: { orgId: string; type: string; behind: string; limit: number }) =>
  db
    .selectFrom('webhook_events as e')
    .innerJoin('webhooks as w', 'w.id', 'e.webhook_id')
    .select(['w.id', 'w.status'])
    .distinct()
    .where('e.org_id', '=', p.orgId)
    .where((eb) => eb('e.event', 'in', [eb.cast<string>(eb.val(p.type), 'text'), eb.val('*')]))
    .where('e.webhook_id', '>', p.behind)
    .where('w.deleted_at', 'is', null)
    .orderBy('w.id')
    .limit(p.limit),
)

type Pending = Awaited<ReturnType<typeof pending>>[number]

async function giveOutSome(tx: Db, now: Instant): Promise<GivenOut> {
  const events = await pending(tx, { batch })
  const made: { event: Pending; listener: Listener }[] = []
  const done: number[] = []
  const known = new Map<string, Listener[]>()
  for (const event of events) {
    const room = batch - made.length
    if (room === 0) break
    const found = await listenersOf(tx, event, known)
    const part = found.slice(0, room)
    made.push(...part.map((listener) => ({ event, listener })))
    if (part.length === found.length && found.length <= batch) done.push(event.seq)
    else
      await tx
        .updateTable('events')
        .set({ given_to: part.at(-1)!.id })
        .where('seq', '=', event.seq)
        .execute()
  }
  if (done.length > 0) await tx.deleteFrom('events').where('seq', 'in', done).execute()
  const webhookIds = await enqueue(tx, made, now)
  return { webhookIds, more: events.length === batch || done.length < events.length }
}

/** One more than fit, which tells whether there are more; the same question is asked once. */
async function listenersOf(tx: Db, event: Pending, known: Map<string, Listener[]>): Promise<Listener[]> {
  const { org_id: orgId, type, given_to } = event
  const behind = given_to ?? ''
  const question = `${orgId} ${type} ${behind}`
  const found = known.get(question) ?? (await listeners(tx, { orgId, type, behind, limit: batch + 1 }))
  known.set(question, found)
  return found
}

const queued = prepared((db, p: { webhookId: string; lastSeq: number; dueAt: Instant }) =>
  db
    .updateTable('webhook_queues')
    .set({ last_seq: p.lastSeq, due_at: p.dueAt })
    .where('webhook_id', '=', p.webhookId),
)

const kept = prepared((db, p: { webhookId: string; lastSeq: number }) =>
  db.updateTable('webhook_queues').set({ last_seq: p.lastSeq }).where('webhook_id', '=', p.webhookId),
)

async function enqueue(
  tx: Db,
  made: readonly { event: Pending; listener: Listener }[],
  now: Instant,
): Promise<string[]> {
  const states = new Map(
    made.map(({ listener }) => [listener.id, listener.status === storedStatus('active')]),
  )
  if (states.size === 0) return []
  // In the order of their ids, as everyone who holds several.
  const found = tx
    .selectFrom('webhook_queues')
    .select(['webhook_id', 'last_seq', 'due_at'])
    .where('webhook_id', 'in', [...states.keys()])
    .orderBy('webhook_id')
  const queues = new Map((await forUpdate(found).execute()).map((queue) => [queue.webhook_id, queue]))
  const rows: WebhookDeliveryRow[] = []
  for (const { event, listener } of made) {
    const queue = queues.get(listener.id)
    // Deleted for good a moment ago.
    if (!queue) continue
    queue.last_seq += 1
    rows.push(
      deliveryOf(event, { webhookId: listener.id, seq: queue.last_seq, goes: states.get(listener.id)!, now }),
    )
  }
  if (rows.length > 0) await tx.insertInto('webhook_deliveries').values(rows).execute()
  for (const { webhook_id: webhookId, last_seq: lastSeq, due_at } of queues.values()) {
    const dueAt = due_at !== null && due_at < now ? due_at : now
    if (states.get(webhookId)) await queued(tx, { webhookId, lastSeq, dueAt })
    else await kept(tx, { webhookId, lastSeq })
  }
  return [...queues.keys()].filter((id) => states.get(id))
}

const deliveryOf = (
  event: Pending,
  { webhookId, seq, goes, now }: { webhookId: string; seq: number; goes: boolean; now: Instant },
): WebhookDeliveryRow => ({
  id: newId(),
  webhook_id: webhookId,
  org_id: event.org_id,
  seq,
  event: event.type,
  event_id: event.id,
  event_at: event.created_at,
  payload: event.data,
  status: 'pending',
  asked_for: 0,
  attempt: 0,
  due_at: goes ? now : null,
  response_status: null,
  response_body: null,
  response_time_ms: null,
  error_message: null,
  failure_class: null,
  created_at: now,
  delivered_at: null,
})
