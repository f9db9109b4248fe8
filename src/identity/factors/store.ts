import { newId } from '../../core/new-id.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { UserRow } from '../../storage/schema/tables.ts'
import { membershipIsInForce } from '../memberships.ts'
import { orgOfContext, type SessionContext } from '../rules.ts'
import { revokeSessions, type User } from '../store.ts'
import { type MfaPolicy, mfaPolicyOf } from './rules.ts'

/** True when no code of this step or a later one was used before. */
export async function consumeTotpStep(db: Db, userId: string, step: number): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('users')
    .set({ totp_step: step })
    .where('id', '=', userId)
    .where('totp_step', '<', step)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

/** True when the code exists and was not used before. */
export async function consumeRecoveryCode(
  db: Db,
  userId: string,
  hashes: readonly string[],
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('recovery_codes')
    .set({ used_at: now })
    .where('user_id', '=', userId)
    .where('hash', 'in', hashes)
    .where('used_at', 'is', null)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

// Enrolling a factor.

/** `content` is encrypted. */
export type MfaSetup = { content: string; expiresAt: Instant }

export async function saveMfaSetup(db: Db, userId: string, setup: MfaSetup): Promise<void> {
  const row = { content: setup.content, expires_at: setup.expiresAt }
  await db
    .insertInto('mfa_setups')
    .values({ user_id: userId, ...row })
    .onConflict((c) => c.column('user_id').doUpdateSet(row))
    .execute()
}

export async function findMfaSetup(db: Db, userId: string): Promise<MfaSetup | undefined> {
  const row = await db.selectFrom('mfa_setups').selectAll().where('user_id', '=', userId).executeTakeFirst()
  return row && { content: row.content, expiresAt: row.expires_at }
}

export type Factor = { method: 'totp'; secret: string; step: number } | { method: 'sms' }

/** Turns a factor on and ends every session made before; false when the factors changed meanwhile. */
export async function enableFactor(
  db: Db,
  user: Pick<User, 'id' | 'mfaEpoch'>,
  factor: Factor,
  recoveryHashes: readonly string[],
  now: Instant,
): Promise<boolean> {
  const { method } = factor
  const totp = factor.method === 'totp' ? { totp_secret: factor.secret, totp_step: factor.step } : {}
  if (!(await changeFactors(db, user, { mfa_method: method, ...totp }, now))) return false
  await db.deleteFrom('mfa_setups').where('user_id', '=', user.id).execute()
  await replaceRecoveryCodes(db, user.id, recoveryHashes)
  return true
}

/** Removes every factor and ends every session made before; false when the factors changed meanwhile. */
export async function disableFactors(
  db: Db,
  user: Pick<User, 'id' | 'mfaEpoch'>,
  now: Instant,
): Promise<boolean> {
  const none = { mfa_method: null, totp_secret: null, phone_number: null, phone_verified: 0 }
  if (!(await changeFactors(db, user, none, now))) return false
  await replaceRecoveryCodes(db, user.id, [])
  return true
}

/** Records a proven phone number; false when the factors changed meanwhile. */
export async function setPhone(
  db: Db,
  user: Pick<User, 'id' | 'mfaEpoch'>,
  phoneNumber: string,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('users')
    .set({ phone_number: phoneNumber, phone_verified: 1, updated_at: now })
    .where('id', '=', user.id)
    .where('mfa_epoch', '=', user.mfaEpoch)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

async function changeFactors(
  db: Db,
  user: Pick<User, 'id' | 'mfaEpoch'>,
  change: Partial<
    Pick<UserRow, 'mfa_method' | 'totp_secret' | 'totp_step' | 'phone_number' | 'phone_verified'>
  >,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('users')
    .set({ ...change, mfa_epoch: user.mfaEpoch + 1, updated_at: now })
    .where('id', '=', user.id)
    .where('mfa_epoch', '=', user.mfaEpoch)
    .executeTakeFirstOrThrow()
  if (numUpdatedRows !== 1n) return false
  await revokeSessions(db, user.id, now)
  return true
}

export async function replaceRecoveryCodes(db: Db, userId: string, hashes: readonly string[]): Promise<void> {
  await db.deleteFrom('recovery_codes').where('user_id', '=', userId).execute()
  if (hashes.length === 0) return
  const codes = hashes.map((hash) => ({ id: newId(), user_id: userId, hash, used_at: null }))
  await db.insertInto('recovery_codes').values(codes).execute()
}

/**
 * The combined factor policy of the live partners and organizations that a person has joined, and of the
 * session's tenant. An organization that its own provider added them to does not govern what they do elsewhere.
 */
export async function findMfaPolicy(db: Db, userId: string, context: SessionContext): Promise<MfaPolicy> {
  const partners = db
    .selectFrom('partner_memberships as m')
    .innerJoin('partners as p', 'p.id', 'm.partner_id')
    .select('p.settings')
    .where('m.user_id', '=', userId)
    .where('m.accepted_by', '=', 'holder')
    .where('m.disabled_at', 'is', null)
    .where('p.deleted_at', 'is', null)
  const orgs = db
    .selectFrom('organization_memberships as m')
    .innerJoin('organizations as o', 'o.id', 'm.org_id')
    .select('o.settings')
    .where('m.user_id', '=', userId)
    .where(membershipIsInForce)
    .where((eb) => eb.or([eb('m.accepted_by', '=', 'holder'), eb('o.id', '=', orgOfContext(context) ?? '')]))
    .where('o.deleted_at', 'is', null)
  const rows = await partners.unionAll(orgs).execute()
  return mfaPolicyOf(rows.map((row) => row.settings))
}

/** Deletes expired setups. */
export async function sweepFactors(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('mfa_setups').where('expires_at', '<', now).execute()
}
