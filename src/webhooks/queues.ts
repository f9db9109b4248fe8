import type { Instant } from '../core/time.ts'
import { forUpdate, prepared } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'

/*
 * The queues of webhooks that were found within a scope before, or are the service's own to work on.
 */

const queueOf = prepared((db, p: { webhookId: string }) =>
  forUpdate(
    db
      .selectFrom('webhook_queues')
      .select(['last_seq as lastSeq', 'holder'])
      .where('webhook_id', '=', p.webhookId),
  ),
)

/** Whoever gives numbers to deliveries, or says when the next is due, does so one after the other. */
export async function lockQueue(
  db: Db,
  webhookId: string,
): Promise<{ lastSeq: number; holder: string | null } | undefined> {
  const [queue] = await queueOf(db, { webhookId })
  return queue
}

const firstDue = prepared((db, p: { webhookId: string }) =>
  db
    .selectFrom('webhook_deliveries')
    .select('due_at as dueAt')
    .where('webhook_id', '=', p.webhookId)
    .where('due_at', 'is not', null)
    .orderBy('due_at')
    .limit(1),
)

const firstAskedFor = prepared((db, p: { webhookId: string }) =>
  db
    .selectFrom('webhook_deliveries')
    .select('due_at as dueAt')
    .where('webhook_id', '=', p.webhookId)
    .where('due_at', 'is not', null)
    .where('asked_for', '=', 1)
    .orderBy('due_at')
    .limit(1),
)

/** When the first of the deliveries is due that may go out; the queue is held. */
export async function nextDue(
  db: Db,
  webhookId: string,
  { isActive }: { isActive: boolean },
): Promise<Instant | null> {
  const [first] = await (isActive ? firstDue : firstAskedFor)(db, { webhookId })
  return first?.dueAt ?? null
}

const dueChange = prepared((db, p: { webhookId: string; dueAt: Instant }) =>
  db.updateTable('webhook_queues').set({ due_at: p.dueAt }).where('webhook_id', '=', p.webhookId),
)

/** Puts down when the next delivery is due, after what is in the queue, or may go out of it, has changed. */
export async function reschedule(db: Db, webhookId: string, state: { isActive: boolean }): Promise<void> {
  if (!(await lockQueue(db, webhookId))) return
  const dueAt = await nextDue(db, webhookId, state)
  if (dueAt !== null) return void (await dueChange(db, { webhookId, dueAt }))
  await db.updateTable('webhook_queues').set({ due_at: null }).where('webhook_id', '=', webhookId).execute()
}
