import type { Instant } from '../core/time.ts'
import type { Db } from './db.ts'
import { bytesOf, sumOf } from './query/expressions.ts'

/** The queue of an entry that could not be written to its table. */
export const deadLetterSources = ['audit_logs', 'events'] as const
export type DeadLetterSource = (typeof deadLetterSources)[number]

export type DeadLetter = {
  source: DeadLetterSource
  orgId: string | null
  /** As the queue held it. */
  entry: string
  reason: string
  now: Instant
}

/** Limits per source: one that keeps failing must not fill the disk. */
export const maxDeadLetters = { rows: 10_000, bytes: 64 * 2 ** 20 }

/**
 * Stores an entry that would block its queue for ever. Returns its id; undefined at the limit: then the loss is
 * counted, and the oldest entries, which show best what went wrong first, stay.
 */
export async function insertDeadLetter(
  tx: Db,
  { source, orgId, entry, reason, now }: DeadLetter,
  max = maxDeadLetters,
): Promise<number | undefined> {
  const { rows, bytes } = await tx
    .selectFrom('set_aside')
    .select(({ fn }) => [fn.countAll<number>().as('rows'), sumOf(sizeOfEntry).as('bytes')])
    .where('source', '=', source)
    .executeTakeFirstOrThrow()
  if (Number(rows) >= max.rows || Number(bytes) + Buffer.byteLength(entry) > max.bytes) {
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

/** A short reason without the entry's content, for readers who may not see that. */
export function failureReason(error: unknown): string {
  if (error instanceof SyntaxError) return 'It is not JSON'
  const { code, message } = error as { code?: unknown; message?: unknown }
  return typeof code === 'string' ? `The database refused it (${code})` : String(message ?? error)
}

/** Count and bytes of dead letters per source, created at `since` or later. */
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

/** Number lost per source, with reason and time of the last loss. */
export const listLostDeadLetters = (db: Db) =>
  db.selectFrom('set_aside_lost').selectAll().orderBy('source').execute()

/** Dead letters after this id, oldest first, without their entries. */
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

/** Events are kept as long as deliveries are. Entries that the audit log lacks stay for good. */
export async function deleteEventDeadLetters(tx: Db, before: Instant): Promise<void> {
  await tx.deleteFrom('set_aside').where('source', '=', 'events').where('created_at', '<', before).execute()
}
