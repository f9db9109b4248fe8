import { newId } from '../../core/new-id.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { revokeSessions } from '../store.ts'

/** True when no code of this step or a later one was used before. */
export async function spendTotpStep(db: Db, userId: string, step: number): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('users')
    .set({ totp_step: step })
    .where('id', '=', userId)
    .where('totp_step', '<', step)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

/** True when the code exists and was not used before. */
export async function spendRecoveryCode(
  db: Db,
  userId: string,
  hash: string,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('recovery_codes')
    .set({ used_at: now })
    .where('user_id', '=', userId)
    .where('hash', '=', hash)
    .where('used_at', 'is', null)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

// Enrolling an authenticator.

export type MfaSetup = { secret: string; recoveryHashes: string[]; expiresAt: Instant }

export async function saveMfaSetup(db: Db, userId: string, setup: MfaSetup): Promise<void> {
  const row = {
    secret: setup.secret,
    recovery_hashes: JSON.stringify(setup.recoveryHashes),
    expires_at: setup.expiresAt,
  }
  await db
    .insertInto('mfa_setups')
    .values({ user_id: userId, ...row })
    .onConflict((c) => c.column('user_id').doUpdateSet(row))
    .execute()
}

export async function findMfaSetup(db: Db, userId: string): Promise<MfaSetup | undefined> {
  const row = await db.selectFrom('mfa_setups').selectAll().where('user_id', '=', userId).executeTakeFirst()
  return (
    row && { secret: row.secret, recoveryHashes: JSON.parse(row.recovery_hashes), expiresAt: row.expires_at }
  )
}

/**
 * Turns the authenticator on and ends every session made before; false when the factors changed
 * meanwhile.
 */
export async function enableTotp(
  db: Db,
  user: { id: string; mfaEpoch: number },
  totp: { secret: string; step: number; recoveryHashes: string[] },
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('users')
    .set({
      mfa_method: 'totp',
      totp_secret: totp.secret,
      totp_step: totp.step,
      mfa_epoch: user.mfaEpoch + 1,
      updated_at: now,
    })
    .where('id', '=', user.id)
    .where('mfa_epoch', '=', user.mfaEpoch)
    .executeTakeFirstOrThrow()
  if (numUpdatedRows !== 1n) return false
  await db.deleteFrom('mfa_setups').where('user_id', '=', user.id).execute()
  await db.deleteFrom('recovery_codes').where('user_id', '=', user.id).execute()
  const codes = totp.recoveryHashes.map((hash) => ({ id: newId(), user_id: user.id, hash, used_at: null }))
  await db.insertInto('recovery_codes').values(codes).execute()
  await revokeSessions(db, user.id, now)
  return true
}

/** Forgets what has run out. */
export async function sweepFactors(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('mfa_setups').where('expires_at', '<', now).execute()
}
