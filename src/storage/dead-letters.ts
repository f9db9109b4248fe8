import type { Instant } from '../core/time.ts'
import type { Db } from './db.ts'
import { bytesOf, sumOf } from './dialect.ts'

/** From which queue something was taken that could not be written where it belongs. */
export const deadLetterSources = ['audit_logs', 'events'] as const
export type DeadLetterSource = (typeof deadLetterSources)[number]

export type DeadLetter = {
  source: DeadLetterSource
  orgId: string | null
  /** As it was in the queue. */
  entry: string
  reason: string
  now: Instant
}

/** Most of one source: one that goes on failing must not fill the disk. */
export const maxDeadLetters = { rows: 10_000, bytes: 64 * 2 ** 20 }

/**
 * Keeps what would hold up the others of its queue for ever. Gives its number; undefined where as much is kept as may be:
 * then what is lost is counted, and what was kept first, which tells best what began it, stays.
 */
export async function insertDeadLetter(
  tx: Db,
  { source, orgId, entry, reason, now }: DeadLetter,
  most = maxDeadLetters,
): Promise<number | undefined> {
  const { rows, bytes } = await tx
    .selectFrom('set_aside')
    .select(({ fn }) => [fn.countAll<number>().as('rows'), sumOf(sizeOfEntry).as('bytes')])
    .where('source', '=', source)
    .executeTakeFirstOrThrow()
  if (Number(rows) >= most.rows || Number(bytes) + Buffer.byteLength(entry) > most.bytes) {
    await tx
      .insertInto('set_aside_lost')
      .values({ source, count: 1, reason, last_at: now })
      .onConflict((conflict) =>
        conflict.column('source').doUpdateSet((eb) => ({
          count: eb('set_aside_lost.count', '+', 1),
          reason,
          last_at: now,
        })),
      )
      .execute()
    return undefined
  }
  const { id } = await tx
    .insertInto('set_aside')
    .values({ source, org_id: orgId, entry, reason, created_at: now })
    .returning('id')
    .executeTakeFirstOrThrow()
  return id
}

export const sizeOfEntry = bytesOf(['entry'], 0)

/** In short and without what it was about, for those who may not see that. */
export function failureReason(error: unknown): string {
  if (error instanceof SyntaxError) return 'It is no JSON'
  const { code, message } = error as { code?: unknown; message?: unknown }
  return typeof code === 'string' ? `The database refused it (${code})` : String(message ?? error)
}

/** How many there are, and of how many bytes, by source; `since`: set aside not before. */
export const countDeadLetters = (
  db: Db,
  since: Instant,
): Promise<{ source: string; count: number; bytes: number }[]> =>
  db
    .selectFrom('set_aside')
    .select(({ fn }) => ['source', fn.countAll<number>().as('count'), sumOf(sizeOfEntry).as('bytes')])
    .where('created_at', '>=', since)
    .groupBy('source')
    .orderBy('source')
    .execute()

/** How many were lost in all, by source, and of the last of them why and when. */
export const listLostDeadLetters = (db: Db) =>
  db.selectFrom('set_aside_lost').selectAll().orderBy('source').execute()

/** Those behind one, oldest first, without what they hold. */
export const listDeadLettersAfter = (db: Db, id: number) =>
  db
    .selectFrom('set_aside')
    .select(['id', 'source', 'org_id as orgId', 'reason'])
    .where('id', '>', id)
    .orderBy('id')
    .limit(100)
    .execute()

export async function findLastDeadLetterId(db: Db): Promise<number> {
  const row = await db.selectFrom('set_aside').select('id').orderBy('id', 'desc').limit(1).executeTakeFirst()
  return row?.id ?? 0
}

/** Events are told for as long as deliveries are kept. What the audit log lacks stays for good. */
export async function deleteEventDeadLetters(tx: Db, before: Instant): Promise<void> {
  await tx.deleteFrom('set_aside').where('source', '=', 'events').where('created_at', '<', before).execute()
}
