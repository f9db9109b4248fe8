import { hash } from 'node:crypto'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { foldEmail } from '../rules.ts'
import type { AttemptMark } from './rules.ts'

/**
 * By whom marks are kept. Addresses without an account share some thousand rows: guessing at them costs what guessing at
 * an account does, and fills no table.
 */
export const userGuardKey = (userId: string): string => userId
export const strangerGuardKey = (email: string): string =>
  `nobody ${hash('sha256', foldEmail(email), 'hex').slice(0, 3)}`

/** The marks of a door, which is locked until the end of the transaction: of attempts at one moment each is counted. */
export async function lockMarks(db: Db, door: string, now: Instant): Promise<AttemptMark[]> {
  const { marks } = await db
    .insertInto('sign_in_marks')
    .values({ door, marks: '[]', guarded_until: null, expires_at: now })
    .onConflict((c) => c.column('door').doUpdateSet((eb) => ({ marks: eb.ref('sign_in_marks.marks') })))
    .returning('marks')
    .executeTakeFirstOrThrow()
  return JSON.parse(marks) as AttemptMark[]
}

export async function saveMarks(
  db: Db,
  door: string,
  {
    marks,
    guardedUntil,
    expiresAt,
  }: { marks: AttemptMark[]; guardedUntil: Instant | null; expiresAt: Instant },
): Promise<void> {
  await db
    .updateTable('sign_in_marks')
    .set({ marks: JSON.stringify(marks), guarded_until: guardedUntil, expires_at: expiresAt })
    .where('door', '=', door)
    .execute()
}

/** Opens the door of an account to everybody with the password. */
export async function deleteMarks(db: Db, userId: string): Promise<void> {
  await db.deleteFrom('sign_in_marks').where('door', '=', userGuardKey(userId)).execute()
}

/** Accounts of which strangers are asked for a proof. */
export async function countGuardedAccounts(db: Db, now: Instant): Promise<number> {
  const { count } = await db
    .selectFrom('sign_in_marks')
    .innerJoin('users', 'users.id', 'sign_in_marks.door')
    .select((eb) => eb.fn.countAll<number | string>().as('count'))
    .where('guarded_until', '>', now)
    .executeTakeFirstOrThrow()
  return Number(count)
}

/** Forgets what has run out. */
export async function sweepMarks(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('sign_in_marks').where('expires_at', '<', now).execute()
}
