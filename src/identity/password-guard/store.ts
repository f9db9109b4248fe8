import { hash } from 'node:crypto'
import { foldEmail } from '../../core/email.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { AttemptMark } from './rules.ts'

/**
 * Keys of the mark rows. Addresses without an account share some thousand rows: guessing at them takes the same
 * work as guessing at an account, and fills no table.
 */
export const userGuardKey = (userId: string): string => userId
export const unknownAccountKey = (email: string): string =>
  `nobody ${hash('sha256', foldEmail(email), 'hex').slice(0, 3)}`

/**
 * The marks of a key; the row stays locked until the end of the transaction, so that concurrent attempts are
 * each counted.
 */
export async function lockMarks(db: Db, key: string, now: Instant): Promise<AttemptMark[]> {
  const { marks } = await db
    .insertInto('sign_in_marks')
    .values({ door: key, marks: '[]', guarded_until: null, expires_at: now })
    .onConflict((c) => c.column('door').doUpdateSet((eb) => ({ marks: eb.ref('sign_in_marks.marks') })))
    .returning('marks')
    .executeTakeFirstOrThrow()
  return JSON.parse(marks) as AttemptMark[]
}

export async function saveMarks(
  db: Db,
  key: string,
  {
    marks,
    guardedUntil,
    expiresAt,
  }: { marks: AttemptMark[]; guardedUntil: Instant | null; expiresAt: Instant },
): Promise<void> {
  await db
    .updateTable('sign_in_marks')
    .set({ marks: JSON.stringify(marks), guarded_until: guardedUntil, expires_at: expiresAt })
    .where('door', '=', key)
    .execute()
}

/** Lifts the lockouts of an account. */
export async function deleteMarks(db: Db, userId: string): Promise<void> {
  await db.deleteFrom('sign_in_marks').where('door', '=', userGuardKey(userId)).execute()
}

/** Number of accounts at which unknown clients need a further proof. */
export async function countGuardedAccounts(db: Db, now: Instant): Promise<number> {
  const { count } = await db
    .selectFrom('sign_in_marks')
    .innerJoin('users', 'users.id', 'sign_in_marks.door')
    .select((eb) => eb.fn.countAll<number | string>().as('count'))
    .where('guarded_until', '>', now)
    .executeTakeFirstOrThrow()
  return Number(count)
}

/** Deletes expired marks. */
export async function sweepMarks(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('sign_in_marks').where('expires_at', '<', now).execute()
}
