import type { Instant } from '../core/time.ts'
import type { Db } from './db.ts'

/** From which queue something was taken that could not be written where it belongs. */
export type Source = 'audit_logs' | 'events'

export type SetAside = {
  source: Source
  orgId: string | null
  /** As it was in the queue. */
  entry: string
  reason: string
  now: Instant
}

/** Keeps what would hold up the others of its queue for ever: nothing of it is lost. Gives its number. */
export async function setAside(tx: Db, { source, orgId, entry, reason, now }: SetAside): Promise<number> {
  const { id } = await tx
    .insertInto('set_aside')
    .values({ source, org_id: orgId, entry, reason, created_at: now })
    .returning('id')
    .executeTakeFirstOrThrow()
  return id
}

/** In short and without what it was about, for those who may not see that. */
export function reasonOf(error: unknown): string {
  if (error instanceof SyntaxError) return 'It is no JSON'
  const { code, message } = error as { code?: unknown; message?: unknown }
  return typeof code === 'string' ? `The database refused it (${code})` : String(message ?? error)
}

/** How many there are, by source; `since`: set aside not before. */
export const countSetAside = (db: Db, since: Instant): Promise<{ source: string; count: number }[]> =>
  db
    .selectFrom('set_aside')
    .select(({ fn }) => ['source', fn.countAll<number>().as('count')])
    .where('created_at', '>=', since)
    .groupBy('source')
    .orderBy('source')
    .execute()

/** Those behind one, oldest first, without what they hold. */
export const setAsideAfter = (db: Db, id: number) =>
  db
    .selectFrom('set_aside')
    .select(['id', 'source', 'org_id as orgId', 'reason'])
    .where('id', '>', id)
    .orderBy('id')
    .limit(100)
    .execute()

export async function lastSetAside(db: Db): Promise<number> {
  const row = await db.selectFrom('set_aside').select('id').orderBy('id', 'desc').limit(1).executeTakeFirst()
  return row?.id ?? 0
}

/** Events are told for as long as deliveries are kept. What the audit log lacks stays for good. */
export async function forgetEventsSetAside(tx: Db, before: Instant): Promise<void> {
  await tx.deleteFrom('set_aside').where('source', '=', 'events').where('created_at', '<', before).execute()
}
