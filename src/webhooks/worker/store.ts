import type { Cipher } from '../../core/cipher.ts'
import { snake } from '../../core/snake-case.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { after } from '../../storage/query/expressions.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { type Each, preparedForEach } from '../../storage/query/prepared-for-each.ts'
import type { Columns } from '../../storage/query/row-list.ts'
import { rowList } from '../../storage/query/row-list.ts'
import type { DeliveryOutcome, PendingDelivery } from '../deliveries/rules.ts'
import { findNextDue, partitionActive } from '../queues.ts'
import { toStoredStatus, type WebhookRecord } from '../rules.ts'
import { decryptWebhook, webhookColumns } from '../store.ts'
import type { QueuePosition } from './endpoint-queues.ts'

/* Queries of the service itself, across all tenants. */

const ids = rowList<{ id: string }>({ id: 'text' })

const webhooksOf = prepared((db, p: { ids: string }) =>
  db
    .selectFrom('webhooks')
    .innerJoin('organizations as o', 'o.id', 'webhooks.org_id')
    .select(webhookColumns)
    .where('webhooks.id', 'in', (eb) => eb.selectFrom(ids.as(p.ids, 'asked')).select('asked.id'))
    .where('webhooks.deleted_at', 'is', null)
    .where('o.deleted_at', 'is', null),
)

/** The current records of webhooks, by id, without deleted ones and webhooks of deleted organizations. */
export async function findWebhooks(
  db: Db,
  cipher: Cipher,
  asked: readonly string[],
): Promise<Map<string, WebhookRecord>> {
  const rows = await webhooksOf(db, { ids: listOf(asked) })
  return new Map(rows.map((row) => [row.id, decryptWebhook(cipher, { ...row, events: '[]' })]))
}

const listOf = (all: readonly string[]): string => ids.of(all.map((id) => ({ id })))

/** The deliveries to load for a queue: those after a position. */
export type DeliveryQuery = {
  webhookId: string
  isActive: boolean
  now: Instant
  limit: number
} & QueuePosition

const queries = { webhookId: 'text', now: 'text', limit: 'bigint', dueAt: 'text', seq: 'bigint' } as const
type QueryOf = Each<Pick<DeliveryQuery, keyof typeof queries>>

const deliveriesOf = (db: Db, query: QueryOf) =>
  db
    .selectFrom('webhook_deliveries as d')
    .select(['d.id', 'd.webhook_id as webhookId', 'd.org_id as orgId', 'd.seq', 'd.event'])
    .select([
      'd.event_id as eventId',
      'd.event_at as eventAt',
      'd.payload',
      'd.attempt',
      'd.asked_for as askedFor',
    ])
    .select((eb) => eb.ref('d.due_at').$notNull().as('dueAt'))
    .where('d.webhook_id', '=', query.webhookId)
    .where('d.due_at', '<=', query.now)
    .where(after(['d.due_at', 'd.seq'], [query.dueAt, query.seq]))
    .orderBy('d.due_at')
    .orderBy('d.seq')
    .limit(query.limit)

/* One query for each state: a common one would read all due deliveries, instead of seeking to the first ones. */
const due = preparedForEach(queries, deliveriesOf)
const dueAskedFor = preparedForEach(queries, (db, query: QueryOf) =>
  deliveriesOf(db, query).where('d.asked_for', '=', 1),
)

/** Due deliveries of each webhook, the longest due first; if it is not active, only those that a user requested. */
export const findPendingDeliveries = async (
  db: Db,
  all: readonly DeliveryQuery[],
): Promise<PendingDelivery[]> => {
  const [active, others] = partitionActive(all)
  return [...(await due(db, active)), ...(await dueAskedFor(db, others))]
}

type Written = Omit<DeliveryOutcome, 'isUnwanted'> & { endedAt: Instant | null }

/** What an outcome changes of its delivery. */
const written = {
  status: 'text',
  attempt: 'bigint',
  dueAt: 'text',
  responseStatus: 'bigint',
  responseBody: 'text',
  responseTimeMs: 'bigint',
  errorMessage: 'text',
  failureClass: 'text',
  deliveredAt: 'text',
  endedAt: 'text',
} satisfies Columns<Written>

const outcomes = rowList<Written & { id: string; before: number }>({
  id: 'text',
  before: 'bigint',
  ...written,
})

const writtenFields = Object.keys(written) as (keyof typeof written)[]

/** Only if no other outcome was recorded since the delivery was sent. */
const outcomeChanges = prepared((db, p: { outcomes: string }) =>
  db
    .updateTable('webhook_deliveries')
    .from(outcomes.as(p.outcomes, 'o'))
    .set((eb) => Object.fromEntries(writtenFields.map((field) => [snake(field), eb.ref(`o.${field}`)])))
    .whereRef('webhook_deliveries.id', '=', 'o.id')
    .whereRef('webhook_deliveries.attempt', '=', 'o.before')
    .where('due_at', 'is not', null)
    .returning('webhook_deliveries.id'),
)

/**
 * Records outcomes. Returns the ids of the updated deliveries: another process may have sent one meanwhile, or it was
 * deleted with its webhook.
 */
export async function updateDeliveries(
  db: Db,
  attempts: readonly { delivery: PendingDelivery; outcome: DeliveryOutcome }[],
  now: Instant,
): Promise<Set<string>> {
  if (attempts.length === 0) return new Set()
  const rows = attempts.map(({ delivery: { id, attempt: before }, outcome }) => ({
    ...outcome,
    id,
    before,
    endedAt: outcome.dueAt === null ? now : null,
  }))
  return new Set((await outcomeChanges(db, { outcomes: outcomes.of(rows) })).map(({ id }) => id))
}

/** Marks a webhook as failed, until a user reactivates it. Returns false if it was no longer active. */
export async function failWebhook(db: Db, webhookId: string, now: Instant): Promise<boolean> {
  const [{ numUpdatedRows }] = (await db
    .updateTable('webhooks')
    .set({ status: toStoredStatus('failed'), updated_at: now })
    .where('id', '=', webhookId)
    .where('status', '=', toStoredStatus('active'))
    .execute()) as [{ numUpdatedRows: bigint }]
  return numUpdatedRows > 0n
}

/** Numbers to add to the counts of one webhook. */
export type OutcomeCounts = {
  webhookId: string
  successes: number
  failures: number
  at: Instant
  lastSuccessAt: Instant | null
}

const tallies = rowList<OutcomeCounts>({
  webhookId: 'text',
  successes: 'bigint',
  failures: 'bigint',
  at: 'text',
  lastSuccessAt: 'text',
})

const counted = prepared((db, p: { tallies: string }) =>
  db
    .updateTable('webhook_counts')
    .from(tallies.as(p.tallies, 't'))
    .set((eb) => ({
      success_count: eb('success_count', '+', eb.ref('t.successes')),
      failure_count: eb('failure_count', '+', eb.ref('t.failures')),
      last_delivery_at: eb.ref('t.at'),
      last_success_at: eb.fn.coalesce('t.lastSuccessAt', 'last_success_at'),
    }))
    .whereRef('webhook_id', '=', 't.webhookId'),
)

export async function addCounts(db: Db, counts: readonly OutcomeCounts[]): Promise<void> {
  if (counts.length > 0) await counted(db, { tallies: tallies.of(counts) })
}

/** A queue to release. */
export type ReleasedQueue = {
  webhookId: string
  /** Released even if deliveries are due; it becomes due now, after queues that have been due for longer. */
  makesRoom: boolean
}

/** `kept`: it has due deliveries, and stays with its holder. `lost`: this process no longer held it. */
export type ReleaseResult = 'released' | 'kept' | 'lost'

const holders = prepared((db, p: { ids: string }) =>
  forUpdate(
    db
      .selectFrom('webhook_queues')
      .select(['webhook_id as id', 'holder'])
      .where('webhook_id', 'in', (eb) => eb.selectFrom(ids.as(p.ids, 'done')).select('done.id'))
      .orderBy('webhook_id'),
  ),
)

const dues = rowList<{ id: string; dueAt: Instant | null }>({ id: 'text', dueAt: 'text' })

const release = prepared((db, p: { dues: string }) =>
  db
    .updateTable('webhook_queues')
    .from(dues.as(p.dues, 'q'))
    .set((eb) => ({ holder: null, due_at: eb.ref('q.dueAt') }))
    .whereRef('webhook_id', '=', 'q.id'),
)

/** Releases queues, except those that have due deliveries by now and need not make room. */
export async function releaseQueues(
  db: Db,
  done: readonly ReleasedQueue[],
  { holder, now }: { holder: string; now: Instant },
): Promise<Map<string, ReleaseResult>> {
  const results = new Map(done.map(({ webhookId }) => [webhookId, 'lost' as ReleaseResult]))
  if (done.length === 0) return results
  const found = await holders(db, { ids: listOf(done.map(({ webhookId }) => webhookId)) })
  const held = found.filter((queue) => queue.holder === holder)
  if (held.length === 0) return results
  // Read under the locks of the queues: a concurrent change of a webhook reschedules its queue afterwards.
  const webhooks = await webhooksOf(db, { ids: listOf(held.map(({ id }) => id)) })
  const isActive = new Map(webhooks.map(({ id, status }) => [id, status === toStoredStatus('active')]))
  const next = await findNextDue(
    db,
    [...isActive].map(([id, active]) => ({ id, isActive: active })),
  )
  const makingRoom = new Set(done.flatMap(({ webhookId, makesRoom }) => (makesRoom ? webhookId : [])))
  const released: { id: string; dueAt: Instant | null }[] = []
  for (const { id } of held) {
    const dueAt = next.get(id) ?? null
    const isDue = dueAt !== null && dueAt <= now
    const isKept = isDue && !makingRoom.has(id)
    results.set(id, isKept ? 'kept' : 'released')
    if (!isKept) released.push({ id, dueAt: isDue ? now : dueAt })
  }
  if (released.length > 0) await release(db, { dues: dues.of(released) })
  return results
}
