import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { prepared } from '../storage/query/prepared.ts'
import { type Each, preparedForEach } from '../storage/query/prepared-for-each.ts'

/* Queues of webhooks. The caller found them within a scope, or is the service's own worker. */

const queueOf = prepared((db, p: { webhookId: string }) =>
  forUpdate(
    db.selectFrom('webhook_queues').select('last_seq as lastSeq').where('webhook_id', '=', p.webhookId),
  ),
)

/** Locks a queue: whoever assigns sequence numbers, or sets the next due time, must hold this lock. */
export async function lockQueue(db: Db, webhookId: string): Promise<{ lastSeq: number } | undefined> {
  const [queue] = await queueOf(db, { webhookId })
  return queue
}

export const partitionActive = <T extends { isActive: boolean }>(
  all: readonly T[],
): [active: T[], others: T[]] => [
  all.filter(({ isActive }) => isActive),
  all.filter(({ isActive }) => !isActive),
]

const scheduledIn = (db: Db, { id }: Each<{ id: string }>) =>
  db
    .selectFrom('webhook_deliveries as d')
    .select(['d.webhook_id as id', 'd.due_at as dueAt'])
    .where('d.webhook_id', '=', id)
    .where('d.due_at', 'is not', null)
    .orderBy('d.due_at')
    .limit(1)

const first = preparedForEach({ id: 'text' } as const, scheduledIn)
const firstAskedFor = preparedForEach({ id: 'text' } as const, (db, row: Each<{ id: string }>) =>
  scheduledIn(db, row).where('d.asked_for', '=', 1),
)

/** The time of the first delivery that may be sent from each queue; the queues are locked. */
export async function findNextDue(
  db: Db,
  queues: readonly { id: string; isActive: boolean }[],
): Promise<Map<string, Instant | null>> {
  const [active, others] = partitionActive(queues)
  const found = [...(await first(db, active)), ...(await firstAskedFor(db, others))]
  return new Map(found.map(({ id, dueAt }) => [id, dueAt]))
}

const dueChange = prepared((db, p: { webhookId: string; dueAt: Instant | null }) =>
  db.updateTable('webhook_queues').set({ due_at: p.dueAt }).where('webhook_id', '=', p.webhookId),
)

/** Updates the due time of a queue after its content, or the state of its webhook, has changed. */
export async function reschedule(db: Db, webhookId: string, state: { isActive: boolean }): Promise<void> {
  if (!(await lockQueue(db, webhookId))) return
  const dueAt = (await findNextDue(db, [{ id: webhookId, ...state }])).get(webhookId) ?? null
  await dueChange(db, { webhookId, dueAt })
}

/** Events that no delivery was created of yet, counting at most `max`, and the time of the first of them. */
export async function countEvents(
  db: Db,
  max: number,
): Promise<{ count: number; oldest: Instant | undefined }> {
  const events = db.selectFrom('events').orderBy('seq')
  const count = await countRowsOf(db.selectFrom(events.select('seq').limit(max).as('waiting')))
  const first = await events.select('created_at').limit(1).executeTakeFirst()
  return { count, oldest: first?.created_at }
}

/**
 * How many deliveries are due, counting at most `max` webhooks and as many of each, and since when the first of them is.
 * One look at an index for each webhook: a join might read the deliveries that are not due yet.
 */
export async function countDue(
  db: Db,
  now: Instant,
  max: number,
): Promise<{ count: number; oldest: Instant | undefined }> {
  const queues = db.selectFrom('webhook_queues as q').where('q.due_at', '<=', now).orderBy('q.due_at')
  const first = await queues.select('q.due_at').limit(1).executeTakeFirst()
  const each = queues.limit(max).select((eb) => {
    const some = eb
      .selectFrom('webhook_deliveries as d')
      .select('d.id')
      .whereRef('d.webhook_id', '=', 'q.webhook_id')
      .where('d.due_at', '<=', now)
      .limit(max)
    return eb.selectFrom(some.as('due')).select(eb.fn.countAll<number>().as('count')).as('count')
  })
  const { total } = await db
    .selectFrom(each.as('each'))
    .select(({ fn }) => fn.sum<number | null>('each.count').as('total'))
    .executeTakeFirstOrThrow()
  return { count: total ?? 0, oldest: first?.due_at ?? undefined }
}
