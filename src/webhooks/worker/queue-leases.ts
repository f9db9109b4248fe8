import { addSeconds, type Instant } from '../../core/time.ts'
import { forUpdate, prepared } from '../../storage/dialect.ts'
import { isEncryptedWith } from '../../storage/key-check.ts'
import type { Db, Storage } from '../../storage/open.ts'

/*
 * A queue is sent from by one process at a time, its holder, so that how many deliveries of a webhook are on their
 * way at once holds for all processes. Whoever dies holds nothing any more some seconds later.
 */

/** How long a process counts as alive after it last said so, and how often it does. */
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

/** Frees what is held by processes that are no longer alive. */
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

/** Where one process serves a database, any holder from before it started is dead. */
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

type Wanted = {
  now: Instant
  /** Partners and organizations that hold as many queues as they may. */
  apart: readonly string[]
  /** Of the keys of this process, when others have more: what it cannot open is left to them. */
  marks: readonly string[] | undefined
}

/** For so long what does not open here is left to those who may have its key. */
const patienceSeconds = 3600

/** Whether nobody else has come for it in all that time. */
export const isOverdue = (dueAt: Instant, now: Instant): boolean => dueAt <= addSeconds(now, -patienceSeconds)

const isDue = (db: Db, { now, apart, marks }: Wanted) =>
  db
    .selectFrom('webhook_queues')
    .innerJoin('organizations as o', 'o.id', 'webhook_queues.org_id')
    .where('due_at', '<=', now)
    .where('holder', 'is', null)
    .$if(apart.length > 0, (q) => q.where('o.id', 'not in', apart).where('o.partner_id', 'not in', apart))
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
 * Queues with something due that nobody holds, without those of `apart`: those that have waited longest, and where there
 * are more than fit, of each partner in turn, and of each of its organizations.
 */
export async function findDueQueues(
  { read, heavy }: Storage,
  { limit, ...wanted }: Wanted & { limit: number },
): Promise<DueQueue[]> {
  const found = await isDue(read, wanted)
    .select(['webhook_id as webhookId', 'o.partner_id as partnerId', 'o.id as orgId'])
    .select((eb) => eb.ref('due_at').$notNull().as('dueAt'))
    .orderBy('due_at')
    .orderBy('webhook_id')
    .limit(limit + 1)
    .execute()
  if (found.length <= limit) return found
  const inOrgs = isDue(heavy, wanted).select((eb) => [
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

/** Takes those of these queues that are still nobody's; the ids of those it got. */
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

/** When the first of the queues is due that nobody holds. */
export async function findNextDueTime(db: Db): Promise<Instant | undefined> {
  const [first] = await firstDue(db, {})
  return first?.dueAt ?? undefined
}
