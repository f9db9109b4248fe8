import { foldEmail } from '../../core/email.ts'
import { newId } from '../../core/new-id.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { deleteMarks } from '../password-guard/store.ts'
import { revokeSessions } from '../store.ts'

/** Records that a link was requested, whether or not an account has the address, so that both cost the same. */
export async function insertResetRequest(db: Db, email: string, now: Instant): Promise<void> {
  await db
    .insertInto('password_reset_requests')
    .values({ id: newId(), email_key: foldEmail(email), created_at: now })
    .execute()
}

export async function hasResetRequest(db: Db): Promise<boolean> {
  return (
    (await db.selectFrom('password_reset_requests').select('id').limit(1).executeTakeFirst()) !== undefined
  )
}

/** Claims the next request; undefined when there is none left. Several processes may do so at once. */
export async function claimResetRequest(
  db: Db,
  last: string,
  onTaken: (id: string) => void,
): Promise<{ emailKey: string } | undefined> {
  const next = db.selectFrom('password_reset_requests').selectAll().where('id', '>', last).orderBy('id')
  const row = await forUpdate(next.limit(1), { skipLocked: true }).executeTakeFirst()
  if (!row) return undefined
  onTaken(row.id)
  await deleteResetRequest(db, row.id)
  return { emailKey: row.email_key }
}

export async function deleteResetRequest(db: Db, id: string): Promise<void> {
  await db.deleteFrom('password_reset_requests').where('id', '=', id).execute()
}

/** Stores a person's only valid link: a newer one replaces it. */
export async function saveReset(
  db: Db,
  reset: { userId: string; tokenHash: string; expiresAt: Instant },
): Promise<void> {
  const row = { token_hash: reset.tokenHash, expires_at: reset.expiresAt }
  await db
    .insertInto('password_resets')
    .values({ user_id: reset.userId, ...row })
    .onConflict((c) => c.column('user_id').doUpdateSet(row))
    .execute()
}

export async function findReset(
  db: Db,
  tokenHash: string,
  now: Instant,
): Promise<{ userId: string } | undefined> {
  const row = await db
    .selectFrom('password_resets')
    .select('user_id')
    .where('token_hash', '=', tokenHash)
    .where('expires_at', '>', now)
    .executeTakeFirst()
  return row && { userId: row.user_id }
}

/** True for the one request that uses it. */
export async function consumeReset(db: Db, tokenHash: string): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('password_resets')
    .where('token_hash', '=', tokenHash)
    .executeTakeFirstOrThrow()
  return numDeletedRows === 1n
}

/** Sets a password, deletes the recorded failures, and ends every session at once; reset links stop working. */
export async function setPassword(db: Db, userId: string, passwordHash: string, now: Instant): Promise<void> {
  await db
    .updateTable('users')
    .set((eb) => ({
      password_hash: passwordHash,
      password_changed_at: now,
      auth_epoch: eb('auth_epoch', '+', 1),
      updated_at: now,
    }))
    .where('id', '=', userId)
    .execute()
  await db.deleteFrom('password_resets').where('user_id', '=', userId).execute()
  await deleteMarks(db, userId)
  await revokeSessions(db, userId, now)
}

/** Deletes expired links. */
export async function sweepResets(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('password_resets').where('expires_at', '<', now).execute()
}
