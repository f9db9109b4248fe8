import { sql } from 'kysely'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import { prepared } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'
import { rowsOf, type Value } from '../storage/rows.ts'
import type { LoginChallengeRow, SessionRow, UserRow } from '../storage/tables.ts'
import { type Context, foldEmail, lockout } from './rules.ts'

/*
 * Accounts stand above the tenants: a person may belong to several. What a person may see comes from
 * their membership (memberships.ts), and every query below is by the person's own id or e-mail.
 */

const userRows = rowsOf<UserRow>()({ flags: ['is_system', 'phone_verified'] })
const sessionRows = rowsOf<SessionRow>()({ flags: ['mfa'] })
const challengeRows = rowsOf<LoginChallengeRow>()()

export type User = Value<UserRow, never, 'is_system' | 'phone_verified'>
export type Session = Omit<Value<SessionRow, never, 'mfa'>, 'context'> & { context: Context }
export type Challenge = Omit<Value<LoginChallengeRow>, 'context'> & { context: Context }

const userById = prepared((db, p: { id: string }) =>
  db.selectFrom('users').selectAll().where('id', '=', p.id),
)
const userByEmail = prepared((db, p: { key: string }) =>
  db.selectFrom('users').selectAll().where('email_key', '=', p.key),
)

export async function findUser(db: Db, id: string): Promise<User | undefined> {
  const [row] = await userById(db, { id })
  return row && userRows.read(row)
}

export async function findUserByEmail(db: Db, email: string): Promise<User | undefined> {
  const [row] = await userByEmail(db, { key: foldEmail(email) })
  return row && userRows.read(row)
}

const bySession = prepared((db, p: { sessionId: string }) =>
  db
    .selectFrom('sessions as s')
    .innerJoin('users as u', 'u.id', 's.user_id')
    .select([
      'u.id',
      'u.email',
      'u.name',
      'u.status',
      'u.is_system',
      'u.auth_epoch',
      'u.mfa_epoch',
      'u.mfa_method',
    ])
    .where('s.id', '=', p.sessionId)
    .where('s.revoked_at', 'is', null),
)

export type SignedIn = Pick<
  User,
  'id' | 'email' | 'name' | 'status' | 'isSystem' | 'authEpoch' | 'mfaEpoch' | 'mfaMethod'
>

/** The person of a session that was not revoked. */
export async function findBySession(db: Db, sessionId: string): Promise<SignedIn | undefined> {
  const [row] = await bySession(db, { sessionId })
  return row && userRows.read(row)
}

export async function hasUsers(db: Db): Promise<boolean> {
  return (await db.selectFrom('users').select('id').limit(1).executeTakeFirst()) !== undefined
}

export async function insertUser(
  db: Db,
  user: {
    id: string
    email: string
    name: string
    passwordHash: string | null
    isSystem?: boolean
    status?: string
  },
  now: Instant,
): Promise<void> {
  const { id, email, name, passwordHash, isSystem = false, status = 'active' } = user
  await db
    .insertInto('users')
    .values({
      id,
      email,
      email_key: foldEmail(email),
      name,
      status,
      avatar_url: null,
      is_system: isSystem ? 1 : 0,
      password_hash: passwordHash,
      password_changed_at: passwordHash === null ? null : now,
      failed_logins: 0,
      locked_until: null,
      auth_epoch: 1,
      mfa_epoch: 1,
      mfa_method: null,
      totp_secret: null,
      totp_step: 0,
      phone_number: null,
      phone_verified: 0,
      last_login_at: null,
      created_at: now,
      updated_at: now,
    })
    .execute()
}

/** Counts a wrong password; the one that fills the count locks the account instead. */
export async function countWrongPassword(db: Db, userId: string, lockedUntil: Instant): Promise<void> {
  const full = sql<boolean>`failed_logins + 1 >= ${lockout.failures}`
  await db
    .updateTable('users')
    .set({
      failed_logins: sql<number>`case when ${full} then 0 else failed_logins + 1 end`,
      locked_until: sql<string | null>`case when ${full} then ${lockedUntil} else locked_until end`,
    })
    .where('id', '=', userId)
    .execute()
}

export async function recordLogin(db: Db, userId: string, now: Instant): Promise<void> {
  await db
    .updateTable('users')
    .set({ failed_logins: 0, locked_until: null, last_login_at: now })
    .where('id', '=', userId)
    .execute()
}

/** Ends every session of a person at once: tokens carry the epoch they were made in. */
export async function endSessions(db: Db, userId: string, now: Instant): Promise<void> {
  await db
    .updateTable('users')
    .set((eb) => ({ auth_epoch: eb('auth_epoch', '+', 1), updated_at: now }))
    .where('id', '=', userId)
    .execute()
  await revokeFamilies(db, userId, now)
}

async function revokeFamilies(db: Db, userId: string, now: Instant): Promise<void> {
  await db
    .updateTable('sessions')
    .set({ revoked_at: now })
    .where('user_id', '=', userId)
    .where('revoked_at', 'is', null)
    .execute()
}

// Sessions: one row for a login, that is a family of refresh tokens.

export async function insertSession(
  db: Db,
  session: {
    id: string
    userId: string
    context: Context
    mfa: boolean
    tokenHash: string
    expiresAt: Instant
  },
  now: Instant,
): Promise<void> {
  await db
    .insertInto('sessions')
    .values({
      id: session.id,
      user_id: session.userId,
      context: JSON.stringify(session.context),
      mfa: session.mfa ? 1 : 0,
      token_hash: session.tokenHash,
      previous_hash: null,
      rotated_at: now,
      created_at: now,
      expires_at: session.expiresAt,
      revoked_at: null,
    })
    .execute()
}

export async function findSession(db: Db, id: string): Promise<Session | undefined> {
  const row = await db.selectFrom('sessions').selectAll().where('id', '=', id).executeTakeFirst()
  return row && { ...sessionRows.read(row), context: JSON.parse(row.context) as Context }
}

/** Spends the current refresh token for the next; false when another request was first. */
export async function rotateSession(
  db: Db,
  id: string,
  spent: string,
  next: string,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('sessions')
    .set({ token_hash: next, previous_hash: spent, rotated_at: now })
    .where('id', '=', id)
    .where('token_hash', '=', spent)
    .where('revoked_at', 'is', null)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

export async function revokeSession(db: Db, id: string, now: Instant): Promise<void> {
  await db.updateTable('sessions').set({ revoked_at: now }).where('id', '=', id).execute()
}

// The second step of a sign-in.

export async function insertChallenge(db: Db, challenge: Challenge): Promise<void> {
  const row = challengeRows.write({ ...challenge, context: JSON.stringify(challenge.context) })
  await db.insertInto('login_challenges').values(row).execute()
}

export async function findChallenge(db: Db, tokenHash: string): Promise<Challenge | undefined> {
  const row = await db
    .selectFrom('login_challenges')
    .selectAll()
    .where('token_hash', '=', tokenHash)
    .executeTakeFirst()
  return row && { ...challengeRows.read(row), context: JSON.parse(row.context) as Context }
}

/** True for the one request that gets to use it. */
export async function takeChallenge(db: Db, id: string): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('login_challenges')
    .where('id', '=', id)
    .executeTakeFirstOrThrow()
  return numDeletedRows === 1n
}

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
  await revokeFamilies(db, user.id, now)
  return true
}

/** Forgets what has run out. */
export async function sweep(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('login_challenges').where('expires_at', '<', now).execute()
  await db.deleteFrom('mfa_setups').where('expires_at', '<', now).execute()
  await db.deleteFrom('sessions').where('expires_at', '<', now).execute()
}
