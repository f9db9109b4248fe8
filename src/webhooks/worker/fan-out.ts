import { newId } from '../../core/new-id.ts'
import { systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { isLockTimeout, isOutage } from '../../storage/database-errors.ts'
import { failureReason, insertDeadLetter } from '../../storage/dead-letters.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { type Each, preparedForEach } from '../../storage/query/prepared-for-each.ts'
import { rowList } from '../../storage/query/row-list.ts'
import { inScope } from '../../storage/query/scope.ts'
import { toStoredStatus } from '../rules.ts'

/** How long an event waits for the queue of a webhook, which other transactions lock for milliseconds. */
const lockMs = 1000

/** Events whose listeners are loaded at once. Each event may have more of them than fit into the batch. */
const lookAhead = 20

/** An event, and how many deliveries were created of it. */
export type FannedOut = { id: string; type: string; orgId: string; deliveries: number }

/** The result of one call of `fanOut`. */
export type FanOutResult = {
  /** Webhooks with new deliveries that are due. */
  webhookIds: string[]
  /** Whether there may be more events to fan out. */
  more: boolean
  fannedOut: FannedOut[]
  /** The first error. The event that caused it is stored as a dead letter, or stays in the table. */
  failure?: unknown
}

/**
 * Creates a delivery of each event for every webhook that subscribes to it, numbered per webhook without gaps.
 * Deliveries of a paused or failed webhook are stored, and sent only on request. Several processes may do so at once.
 */
export async function fanOut(storage: Storage, now: Instant): Promise<FanOutResult> {
  if ((await anyEvent(storage.read, {})).length === 0) return { webhookIds: [], more: false, fannedOut: [] }
  // Most events read, and deliveries created, in one transaction: small rows, so twice the usual number.
  const batch = 2 * storage.traits.batchSize
  try {
    // Unsynced: after a power failure the same events are fanned out again, as deliveries with other ids.
    return await storage.write((tx) => fanOutBatch(tx, now, { batch }), { unsynced: true, lockMs })
  } catch (error) {
    if (isOutage(error) && !isLockTimeout(error)) throw error
    return fanOutOneByOne(storage, now, batch)
  }
}

/**
 * One event for one webhook per transaction: a delivery that cannot be created is skipped, and blocks no other. An
 * organization with a queue that another transaction keeps locked is left for later, with all its events in order.
 */
async function fanOutOneByOne(storage: Storage, now: Instant, max: number): Promise<FanOutResult> {
  const webhookIds = new Set<string>()
  const fannedOut: FannedOut[] = []
  let after = 0
  const locked = new Set<string>()
  let failure: unknown
  for (let n = 0; n < max; n++) {
    const progress: Progress = { event: undefined, listener: undefined }
    try {
      const from = { after, without: [...locked], progress }
      const result = await storage.write((tx) => fanOutBatch(tx, now, { batch: 1, from }), {
        unsynced: true,
        lockMs,
      })
      for (const id of result.webhookIds) webhookIds.add(id)
      fannedOut.push(...result.fannedOut)
      if (progress.event === undefined)
        return { webhookIds: [...webhookIds], more: false, fannedOut, failure }
    } catch (error) {
      const { event, listener } = progress
      const isLocked = isLockTimeout(error)
      if ((isOutage(error) && !isLocked) || event === undefined) throw error
      failure ??= error
      if (isLocked) {
        locked.add(event.orgId)
        continue
      }
      if (listener === undefined || !(await skipListener(storage, { event, listener, error, now })))
        after = event.seq
    }
  }
  return { webhookIds: [...webhookIds], more: true, fannedOut, failure }
}

/** The event that a transaction fans out, and the listener that it does so for. */
type Progress = { event: Pending | undefined; listener: Listener | undefined }
type Skipped = { event: Pending; listener: Listener; error: unknown; now: Instant }

/**
 * Stores an event as a dead letter of a webhook, and continues with the next webhook. If the database refuses the data
 * of the event there as well, the dead letter is stored without it. Returns false if that fails too.
 */
async function skipListener(storage: Storage, { event, listener, error, now }: Skipped): Promise<boolean> {
  for (const isWhole of [true, false]) {
    try {
      await storage.write(async (tx) => {
        const { seq, orgId } = event
        const known = tx
          .selectFrom('events')
          .select(['id', 'type', 'created_at', 'data'])
          .where('seq', '=', seq)
        const { data, ...rest } = await known.executeTakeFirstOrThrow()
        const entry = JSON.stringify({ webhookId: listener.id, ...rest, ...(isWhole && { data }) })
        await insertDeadLetter(tx, { source: 'events', orgId, entry, reason: failureReason(error), now })
        await tx.updateTable('events').set({ given_to: listener.id }).where('seq', '=', seq).execute()
      })
      return true
    } catch (again) {
      if (isOutage(again)) throw again
    }
  }
  return false
}

/** Checked very often, so that a write begins only if there are events. */
const anyEvent = prepared((db, _: Record<never, string>) =>
  db.selectFrom('events').select('seq').orderBy('seq').limit(1),
)

/** Organizations with events, the one with the oldest event first. */
const waiting = prepared((db, p: { limit: number }) =>
  db
    .withRecursive('waiting(org_id)', (cte) =>
      cte
        .selectFrom('events')
        .select((eb) => eb.fn.min<string | null>('org_id').as('org_id'))
        .unionAll(
          cte
            .selectFrom('waiting')
            .select((eb) =>
              eb
                .selectFrom('events')
                .select((one) => one.fn.min<string | null>('events.org_id').as('org_id'))
                .whereRef('events.org_id', '>', 'waiting.org_id')
                .as('org_id'),
            )
            .where('waiting.org_id', 'is not', null),
        ),
    )
    .selectFrom('waiting')
    .select((eb) => [
      eb.ref('waiting.org_id').$notNull().as('orgId'),
      eb
        .selectFrom('events')
        .select((one) => one.fn.min<number>('events.seq').as('seq'))
        .whereRef('events.org_id', '=', 'waiting.org_id')
        .as('first'),
    ])
    .where('waiting.org_id', 'is not', null)
    .orderBy('first')
    .limit(p.limit),
)

const oldest = preparedForEach(
  { orgId: 'text', limit: 'bigint' } as const,
  (db, of: Each<{ orgId: string; limit: number }>) =>
    db.selectFrom('events').select('seq').where('org_id', '=', of.orgId).orderBy('seq').limit(of.limit),
)

const seqs = rowList<{ seq: number }>({ seq: 'bigint' })

const columns = ['seq', 'id', 'org_id as orgId', 'type'] as const

const eventsIn = (db: Db) =>
  db
    .selectFrom('events')
    .select(columns)
    .select((eb) => eb.fn.coalesce('given_to', eb.cast<string>(eb.val(''), 'text')).as('behind'))

const these = prepared((db, p: { seqs: string }) =>
  forUpdate(
    eventsIn(db)
      .where('seq', 'in', (eb) => eb.selectFrom(seqs.as(p.seqs, 'wanted')).select('wanted.seq'))
      .orderBy('seq'),
    { skipLocked: true },
  ),
)

const orgs = rowList<{ orgId: string }>({ orgId: 'text' })

const next = prepared((db, p: { after: number; without: string }) =>
  forUpdate(
    eventsIn(db)
      .where('seq', '>', p.after)
      .where('org_id', 'not in', (eb) => eb.selectFrom(orgs.as(p.without, 'locked')).select('locked.orgId'))
      .orderBy('seq')
      .limit(1),
    { skipLocked: true },
  ),
)

/**
 * The events to fan out now, and the share of the batch that each organization may use. The shares are equal: an
 * organization with many events, or with many webhooks for each, does not delay the events of others.
 */
async function pending(tx: Db, batch: number): Promise<{ events: Pending[]; share: number }> {
  const tenants = await waiting(tx, { limit: batch })
  const share = Math.ceil(batch / Math.max(1, tenants.length))
  const found = await oldest(
    tx,
    tenants.map(({ orgId }) => ({ orgId, limit: share })),
  )
  return { events: await these(tx, { seqs: seqs.of(found) }), share }
}

type Pending = Awaited<ReturnType<typeof these>>[number]

/** Selects the webhooks of an organization that subscribe to an event type, after the last one that got the event. */
type Audience = Pick<Pending, 'orgId' | 'type' | 'behind'>
type Listener = { id: string; status: string }

const listeners = preparedForEach(
  { orgId: 'text', type: 'text', behind: 'text', limit: 'bigint' } as const,
  (db, audience: Each<Audience & { limit: number }>) =>
    db
      .selectFrom('webhook_events as e')
      .innerJoin('webhooks as w', 'w.id', 'e.webhook_id')
      .select(['w.id', 'w.status', 'e.org_id as orgId'])
      .select((eb) => [
        eb.cast<string>(audience.type, 'text').as('type'),
        eb.cast<string>(audience.behind, 'text').as('behind'),
      ])
      .distinct()
      .where('e.org_id', '=', audience.orgId)
      .where((eb) => eb('e.event', 'in', [eb.cast<string>(audience.type, 'text'), eb.val('*')]))
      .where('e.webhook_id', '>', audience.behind)
      .where('w.deleted_at', 'is', null)
      .where(inScope(systemScope, 'e.org_id'))
      .orderBy('w.id')
      .limit(audience.limit),
)

/**
 * With `from`, fans out only the first event after one, without those of some organizations, and records in `progress` how
 * far it is.
 */
async function fanOutBatch(
  tx: Db,
  now: Instant,
  { batch, from }: { batch: number; from?: { after: number; without: string[]; progress: Progress } },
): Promise<FanOutResult> {
  const progress = from?.progress
  const { events, share } = from
    ? { events: await next(tx, { after: from.after, without: listOfOrgs(from.without) }), share: batch }
    : await pending(tx, batch)
  if (progress) Object.assign(progress, { event: events[0], listener: undefined })
  const made: { event: Pending; listener: Listener }[] = []
  const done: number[] = []
  const fannedOut: FannedOut[] = []
  const known = new Map<string, Listener[]>()
  const had = new Map<string, number>()
  for (const [at, event] of events.entries()) {
    const before = had.get(event.orgId) ?? 0
    const room = Math.min(batch - made.length, share - before)
    if (room === 0) continue
    if (!known.has(nameOf(event))) await loadListeners(tx, events.slice(at, at + lookAhead), known, batch)
    const found = known.get(nameOf(event))!
    const part = found.slice(0, room)
    made.push(...part.map((listener) => ({ event, listener })))
    fannedOut.push({ id: event.id, type: event.type, orgId: event.orgId, deliveries: part.length })
    had.set(event.orgId, before + part.length)
    if (progress) progress.listener = part[0]
    if (part.length === found.length && found.length <= batch) done.push(event.seq)
    else
      await tx
        .updateTable('events')
        .set({ given_to: part.at(-1)!.id })
        .where('seq', '=', event.seq)
        .execute()
  }
  const webhookIds = await enqueue(tx, made, now)
  if (done.length > 0) await deleteEvents(tx, { seqs: seqs.of(done.map((seq) => ({ seq }))) })
  return { webhookIds, more: events.length > 0, fannedOut }
}

const listOfOrgs = (ids: readonly string[]): string => orgs.of(ids.map((orgId) => ({ orgId })))

const nameOf = ({ orgId, type, behind }: Audience): string => `${orgId} ${type} ${behind}`

/** Loads the listeners of these events that are not known: one more than fit, which shows whether there are more. */
async function loadListeners(
  tx: Db,
  events: readonly Pending[],
  known: Map<string, Listener[]>,
  batch: number,
): Promise<void> {
  const audiences = new Map<string, Audience>()
  for (const { orgId, type, behind } of events) {
    const audience = { orgId, type, behind }
    if (!known.has(nameOf(audience))) audiences.set(nameOf(audience), audience)
  }
  for (const name of audiences.keys()) known.set(name, [])
  const asked = [...audiences.values()].map((audience) => ({ ...audience, limit: batch + 1 }))
  for (const { id, status, ...audience } of await listeners(tx, asked)) {
    known.get(nameOf(audience))!.push({ id, status })
  }
}

const deleteEvents = prepared((db, p: { seqs: string }) =>
  db
    .deleteFrom('events')
    .where('seq', 'in', (eb) => eb.selectFrom(seqs.as(p.seqs, 'done')).select('done.seq')),
)

const ids = rowList<{ id: string }>({ id: 'text' })

/** Locks queues in the order of their ids, as every transaction that locks several does, so that none deadlock. */
const queuesOf = prepared((db, p: { ids: string }) =>
  forUpdate(
    db
      .selectFrom('webhook_queues')
      .select(['webhook_id', 'last_seq', 'due_at'])
      .where('webhook_id', 'in', (eb) => eb.selectFrom(ids.as(p.ids, 'wanted')).select('wanted.id'))
      .orderBy('webhook_id'),
  ),
)

const deliveries = rowList<{
  id: string
  webhookId: string
  event: number
  seq: number
  dueAt: Instant | null
}>({ id: 'text', webhookId: 'text', event: 'bigint', seq: 'bigint', dueAt: 'text' })

/** The data is copied within the database: it may be long, and many webhooks may subscribe to it. */
const insertion = prepared((db, p: { deliveries: string; now: Instant }) =>
  db
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
      'status',
      'asked_for',
      'attempt',
      'due_at',
      'created_at',
    ])
    .expression((eb) =>
      eb
        .selectFrom(deliveries.as(p.deliveries, 'd'))
        .innerJoin('events as e', 'e.seq', 'd.event')
        .select(['d.id', 'd.webhookId', 'e.org_id', 'd.seq', 'e.type', 'e.id as event_id'])
        .select(['e.created_at as event_at', 'e.data'])
        .select((one) => [
          one.val('pending').as('status'),
          one.lit(0).as('asked_for'),
          one.lit(0).as('attempt'),
          'd.dueAt',
          one.val(p.now).as('created_at'),
        ]),
    ),
)

const queues = rowList<{ webhookId: string; lastSeq: number; dueAt: Instant | null }>({
  webhookId: 'text',
  lastSeq: 'bigint',
  dueAt: 'text',
})

const updateQueues = prepared((db, p: { queues: string }) =>
  db
    .updateTable('webhook_queues')
    .from(queues.as(p.queues, 'q'))
    .set((eb) => ({ last_seq: eb.ref('q.lastSeq'), due_at: eb.ref('q.dueAt') }))
    .whereRef('webhook_id', '=', 'q.webhookId'),
)

async function enqueue(
  tx: Db,
  made: readonly { event: Pending; listener: Listener }[],
  now: Instant,
): Promise<string[]> {
  const isActive = new Map(
    made.map(({ listener }) => [listener.id, listener.status === toStoredStatus('active')]),
  )
  if (isActive.size === 0) return []
  const held = await queuesOf(tx, { ids: ids.of([...isActive.keys()].map((id) => ({ id }))) })
  const ends = new Map(held.map((queue) => [queue.webhook_id, queue]))
  const rows = made.flatMap(({ event, listener: { id: webhookId } }) => {
    const queue = ends.get(webhookId)
    // Its webhook was deleted for good a moment ago.
    if (!queue) return []
    queue.last_seq += 1
    const dueAt = isActive.get(webhookId) ? now : null
    return { id: newId(), webhookId, event: event.seq, seq: queue.last_seq, dueAt }
  })
  if (rows.length === 0) return []
  await insertion(tx, { deliveries: deliveries.of(rows), now })
  const changed = held.map(({ webhook_id: webhookId, last_seq: lastSeq, due_at: dueAt }) => {
    const isLater = isActive.get(webhookId) && (dueAt === null || dueAt > now)
    return { webhookId, lastSeq, dueAt: isLater ? now : dueAt }
  })
  await updateQueues(tx, { queues: queues.of(changed) })
  return changed.flatMap(({ webhookId }) => (isActive.get(webhookId) ? webhookId : []))
}
