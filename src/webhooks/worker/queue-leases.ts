import { addSeconds, type Instant } from '../../core/time.ts'
import { isEncryptedWith } from '../../storage/key-check.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'

/*
 * Only one process at a time, its holder, sends the deliveries of a queue, so the limit of concurrent deliveries of a
 * webhook holds across processes. The queues of a process that dies are released when its lease has expired.
 */

/** How long a lease lasts after its last renewal, and how often it is renewed. */
export const leaseSeconds = 30
export const renewalSeconds = 10

const renewal = prepared((db, p: { id: string; until: Instant }) =>
  db
    .insertInto('webhook_workers')
    .values({ id: p.id, alive_until: p.until })
    .onConflict((c) => c.column('id').doUpdateSet((eb) => ({ alive_until: eb.ref('excluded.alive_until') }))),
)

export async function renewLease(db: Db, id: string, now: Instant): Promise<void> {
  await renewal(db, { id, until: addSeconds(now, leaseSeconds) })
}

/** Releases the queues of processes whose lease has expired. */
export async function releaseAbandonedQueues(storage: Storage, now: Instant): Promise<void> {
  const abandoned = (db: Db) =>
    db
      .selectFrom('webhook_queues')
      .select('webhook_id')
      .where('holder', 'is not', null)
      .where('holder', 'not in', (eb) =>
        eb.selectFrom('webhook_workers').select('id').where('alive_until', '>', now),
      )
  if (!(await abandoned(storage.read).limit(1).executeTakeFirst())) return
  await storage.write(
    async (tx) => {
      await tx
        .updateTable('webhook_queues')
        .set({ holder: null })
        .where('webhook_id', 'in', abandoned(tx))
        .execute()
      await tx.deleteFrom('webhook_workers').where('alive_until', '<=', now).execute()
    },
    { unsynced: true },
  )
}

/** Releases all queues if no other process serves the database: every holder from before the start is dead. */
export async function releasePredecessorQueues(storage: Storage): Promise<void> {
  if (!storage.traits.singleProcess) return
  await storage.write(
    async (tx) => {
      await tx.deleteFrom('webhook_workers').execute()
      await tx.updateTable('webhook_queues').set({ holder: null }).where('holder', 'is not', null).execute()
    },
    { unsynced: true },
  )
}

export type DueQueue = { webhookId: string; partnerId: string; orgId: string; dueAt: Instant }

type DueQueueFilter = {
  now: Instant
  /** Ids of partners and organizations that have reached their limit of queues. */
  excluded: readonly string[]
  /** Marks of this process's keys, if it lacks the current one: what they cannot decrypt is left to other processes. */
  marks: readonly string[] | undefined
}

/** How long a queue that cannot be decrypted here is left to processes that may have the key. */
const patienceSeconds = 3600

/** Whether no other process has acquired the queue in that time. */
export const isOverdue = (dueAt: Instant, now: Instant): boolean => dueAt <= addSeconds(now, -patienceSeconds)

const isDue = (db: Db, { now, excluded, marks }: DueQueueFilter) =>
  db
    .selectFrom('webhook_queues')
    .innerJoin('organizations as o', 'o.id', 'webhook_queues.org_id')
    .where('due_at', '<=', now)
    .where('holder', 'is', null)
    .$if(excluded.length > 0, (q) =>
      q.where('o.id', 'not in', excluded).where('o.partner_id', 'not in', excluded),
    )
    .$if(marks !== undefined, (q) =>
      q.where((eb) =>
        eb.or([
          eb('due_at', '<=', addSeconds(now, -patienceSeconds)),
          eb.exists(
            eb
              .selectFrom('webhooks as w')
              .select('w.id')
              .whereRef('w.id', '=', 'webhook_queues.webhook_id')
              .where(isEncryptedWith(marks!, 'w.url'))
              .where(isEncryptedWith(marks!, 'w.headers'))
              .where((of) => of.or([of('w.secret', 'is', null), isEncryptedWith(marks!, 'w.secret')])),
          ),
        ]),
      ),
    )

/**
 * Due queues without a holder, the longest due first. If there are more than `limit`, partners take turns, and so do
 * the organizations of each partner.
 */
export async function findDueQueues(
  { read, heavy }: Storage,
  { limit, ...filter }: DueQueueFilter & { limit: number },
): Promise<DueQueue[]> {
  const found = await isDue(read, filter)
    .select(['webhook_id as webhookId', 'o.partner_id as partnerId', 'o.id as orgId'])
    .select((eb) => eb.ref('due_at').$notNull().as('dueAt'))
    .orderBy('due_at')
    .orderBy('webhook_id')
    .limit(limit + 1)
    .execute()
  if (found.length <= limit) return found
  const inOrgs = isDue(heavy, filter).select((eb) => [
    'webhook_id as webhookId',
    'o.partner_id as partnerId',
    'o.id as orgId',
    eb.ref('due_at').$notNull().as('dueAt'),
    eb.fn
      .agg<number>('row_number')
      .over((over) => over.partitionBy('o.id').orderBy('due_at'))
      .as('turnInOrg'),
  ])
  const inPartners = heavy
    .selectFrom(inOrgs.as('due'))
    .selectAll()
    .select((eb) =>
      eb.fn
        .agg<number>('row_number')
        .over((over) => over.partitionBy('due.partnerId').orderBy('due.turnInOrg').orderBy('due.dueAt'))
        .as('turn'),
    )
  return heavy
    .selectFrom(inPartners.as('due'))
    .select(['due.webhookId', 'due.partnerId', 'due.orgId', 'due.dueAt'])
    .orderBy('due.turn')
    .orderBy('due.dueAt')
    .limit(limit)
    .execute()
}

/** Acquires those of these queues that still have no holder; returns their webhooks' ids. */
export async function acquireQueues(
  storage: Storage,
  queues: readonly DueQueue[],
  { holder, now }: { holder: string; now: Instant },
): Promise<string[]> {
  const ids = queues.map(({ webhookId }) => webhookId)
  return storage.write(
    async (tx) => {
      await renewLease(tx, holder, now)
      const free = tx
        .selectFrom('webhook_queues')
        .select('webhook_id')
        .where('webhook_id', 'in', ids)
        .where('holder', 'is', null)
        .orderBy('webhook_id')
      const held = (await forUpdate(free, { skipLocked: true }).execute()).map((row) => row.webhook_id)
      if (held.length === 0) return []
      await tx.updateTable('webhook_queues').set({ holder }).where('webhook_id', 'in', held).execute()
      return held
    },
    { unsynced: true },
  )
}

export const listQueuesHeldBy = async (db: Db, holder: string): Promise<string[]> =>
  (await db.selectFrom('webhook_queues').select('webhook_id').where('holder', '=', holder).execute()).map(
    (row) => row.webhook_id,
  )

const firstDue = prepared((db, _: Record<never, string>) =>
  db
    .selectFrom('webhook_queues')
    .select('due_at as dueAt')
    .where('due_at', 'is not', null)
    .where('holder', 'is', null)
    .orderBy('due_at')
    .limit(1),
)

/** The earliest due time of the queues without a holder. */
export async function findNextDueTime(db: Db): Promise<Instant | undefined> {
  const [first] = await firstDue(db, {})
  return first?.dueAt ?? undefined
}
