import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { rowsOf, type Value } from '../../storage/schema/rows.ts'
import type { LoginChallengeRow, SessionRow, UserRow } from '../../storage/schema/tables.ts'
import type { SessionContext } from '../rules.ts'
import { revokingSessions, type User } from '../store.ts'
import { classifyRefresh, hasEnded } from './rules.ts'
import { sessionOfRefreshToken, tokenHash } from './tokens.ts'

const sessionRows = rowsOf<SessionRow>()({ flags: ['mfa'] })
const challengeRows = rowsOf<LoginChallengeRow>()()
const signedInRows = rowsOf<UserRow>()({ flags: ['is_system'] })

/** One row per sign-in: a family of refresh tokens. */
export type Session = Omit<Value<SessionRow, never, 'mfa'>, 'context'> & {
  context: SessionContext
  /** Status of the identity provider that the session began at; null without one. */
  ssoStatus: string | null
}
/** A sign-in that waits for its second step. */
export type Challenge = Omit<Value<LoginChallengeRow>, 'context'> & { context: SessionContext }

const selectSessionUser = prepared((db, p: { sessionId: string }) =>
  db
    .selectFrom('sessions as s')
    .innerJoin('users as u', 'u.id', 's.user_id')
    .leftJoin('sso_providers as p', 'p.id', 's.sso_provider_id')
    .select([
      'u.id',
      'u.email',
      'u.name',
      'u.status',
      'u.is_system',
      'u.auth_epoch',
      'u.mfa_epoch',
      'u.mfa_method',
      's.sso_provider_id',
      's.expires_at',
      's.created_at',
      's.proved_at',
      'p.vouches',
    ])
    .where('s.id', '=', p.sessionId)
    .where('s.revoked_at', 'is', null),
)

export type SessionUser = Pick<
  User,
  'id' | 'email' | 'name' | 'status' | 'isSystem' | 'authEpoch' | 'mfaEpoch' | 'mfaMethod'
> & {
  ssoProviderId: string | null
  endsBy: Instant | null
  provedAt: Instant
  /** Permissions asserted by the provider that the session began at; null without one. */
  assertedPermissions: ReadonlySet<string> | null
}

/** The user of a session that was not revoked. */
export async function findSessionUser(db: Db, sessionId: string): Promise<SessionUser | undefined> {
  const [row] = await selectSessionUser(db, { sessionId })
  if (!row) return undefined
  const { sso_provider_id: ssoProviderId, expires_at: expiresAt, vouches, ...rest } = row
  const { created_at: createdAt, proved_at, ...user } = rest
  const endsBy = ssoProviderId === null ? null : expiresAt
  const assertedPermissions = vouches === null ? null : new Set(JSON.parse(vouches) as string[])
  return {
    ...signedInRows.read(user),
    ssoProviderId,
    endsBy,
    assertedPermissions,
    provedAt: proved_at ?? createdAt,
  }
}

export async function recordLogin(db: Db, userId: string, now: Instant): Promise<void> {
  await db.updateTable('users').set({ last_login_at: now }).where('id', '=', userId).execute()
}

export type NewSession = {
  id: string
  userId: string
  context: SessionContext
  mfa: boolean
  tokenHash: string
  expiresAt: Instant
  /** The identity provider that the session began at; the session ends with the provider. */
  ssoProviderId?: string | null
  /** When its holder last authenticated; now by default. */
  provedAt?: Instant
}

/** The text of a context that its sessions are looked up by. */
export function contextKey(context: SessionContext): string {
  if (context.kind === 'partner') return JSON.stringify({ kind: 'partner', partnerId: context.partnerId })
  return JSON.stringify(
    context.kind === 'organization' ? { kind: 'organization', orgId: context.orgId } : { kind: 'system' },
  )
}

/** The user's epochs at sign-in: anything that ends all their sessions changes one of the two. */
export type UserEpochs = Pick<User, 'authEpoch' | 'mfaEpoch'>

/**
 * Locks a user as they were when their sign-in was decided, until the transaction ends. A password change or a
 * sign-out everywhere in between would otherwise miss the session that begins now.
 * @throws invalid_token
 */
export async function lockAccount(
  db: Db,
  { userId, authEpoch, mfaEpoch }: { userId: string } & UserEpochs,
): Promise<void> {
  const found = db.selectFrom('users').select(['auth_epoch', 'mfa_epoch']).where('id', '=', userId)
  const row = await forUpdate(found).executeTakeFirst()
  if (row?.auth_epoch !== authEpoch || row.mfa_epoch !== mfaEpoch) throw new Problem('invalid_token')
}

/** Sign-ins use `startSession` instead. */
export async function insertSession(db: Db, session: NewSession, now: Instant): Promise<void> {
  await db
    .insertInto('sessions')
    .values({
      id: session.id,
      user_id: session.userId,
      context: contextKey(session.context),
      mfa: session.mfa ? 1 : 0,
      token_hash: session.tokenHash,
      previous_hash: null,
      rotated_at: now,
      created_at: now,
      expires_at: session.expiresAt,
      revoked_at: null,
      sso_provider_id: session.ssoProviderId ?? null,
      proved_at: session.provedAt ?? now,
    })
    .execute()
}

export async function findSession(db: Db, id: string): Promise<Session | undefined> {
  const row = await db
    .selectFrom('sessions')
    .leftJoin('sso_providers as p', 'p.id', 'sessions.sso_provider_id')
    .selectAll('sessions')
    .select('p.status as sso_status')
    .where('sessions.id', '=', id)
    .executeTakeFirst()
  if (!row) return undefined
  const { sso_status: ssoStatus, ...session } = row
  return { ...sessionRows.read(session), context: JSON.parse(row.context) as SessionContext, ssoStatus }
}

/** Locks a session until the transaction ends; returns when it expires. @throws invalid_token when it has ended */
export async function lockSession(db: Db, id: string, now: Instant): Promise<Instant> {
  const found = db
    .selectFrom('sessions')
    .select(['revoked_at as revokedAt', 'expires_at as expiresAt'])
    .where('id', '=', id)
  const session = await forUpdate(found).executeTakeFirst()
  if (!session || hasEnded(session, now)) throw new Problem('invalid_token')
  return session.expiresAt
}

/**
 * Whether a refresh token belongs to a session of this person that did not begin at a provider. It may be too
 * old to renew the session, as after a longer absence.
 */
export async function isKnownClient(db: Db, token: string, userId: string, now: Instant): Promise<boolean> {
  const session = await findSession(db, sessionOfRefreshToken(token))
  if (session?.userId !== userId || session.ssoProviderId !== null) return false
  if (hasEnded(session, now)) return false
  return classifyRefresh(session, tokenHash(token), now) !== 'reused'
}

/** Replaces the current refresh token with the next; false when another request was first. */
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

/** False when it had already ended. */
export async function revokeSession(db: Db, id: string, now: Instant): Promise<boolean> {
  const { numUpdatedRows } = await revokingSessions(db, now).where('id', '=', id).executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

/** Ends the session that another one replaces. @throws invalid_token when something else has ended it */
export async function endReplacedSession(db: Db, id: string, now: Instant): Promise<void> {
  if (!(await revokeSession(db, id, now))) throw new Problem('invalid_token')
}

/** Ends the sessions of a person that began at one identity provider. */
export async function revokeProviderSessions(
  db: Db,
  userId: string,
  providerId: string,
  now: Instant,
): Promise<void> {
  await revokingSessions(db, now)
    .where('user_id', '=', userId)
    .where('sso_provider_id', '=', providerId)
    .execute()
  await db
    .deleteFrom('device_authorizations')
    .where('user_id', '=', userId)
    .where('sso_provider_id', '=', providerId)
    .execute()
}

// The second step of a sign-in.

export async function insertChallenge(db: Db, challenge: Challenge): Promise<void> {
  const row = challengeRows.write({ ...challenge, context: contextKey(challenge.context) })
  await db.insertInto('login_challenges').values(row).execute()
}

export async function findChallenge(db: Db, tokenHash: string): Promise<Challenge | undefined> {
  const row = await db
    .selectFrom('login_challenges')
    .selectAll()
    .where('token_hash', '=', tokenHash)
    .executeTakeFirst()
  return row && { ...challengeRows.read(row), context: JSON.parse(row.context) as SessionContext }
}

/** True for the one request that uses it. */
export async function consumeChallenge(db: Db, id: string): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('login_challenges')
    .where('id', '=', id)
    .executeTakeFirstOrThrow()
  return numDeletedRows === 1n
}

/** The tenants of a person, by name. */
export async function listTenants(db: Db, userId: string) {
  const partners = await db
    .selectFrom('partner_memberships as m')
    .innerJoin('partners as t', 't.id', 'm.partner_id')
    .innerJoin('roles as r', 'r.id', 'm.role_id')
    .select(['t.id', 't.name', 't.slug', 'r.name as role'])
    .where('m.user_id', '=', userId)
    .where('m.accepted_at', 'is not', null)
    .where('t.deleted_at', 'is', null)
    .orderBy('t.name')
    .execute()
  const orgs = await db
    .selectFrom('organization_memberships as m')
    .innerJoin('organizations as t', 't.id', 'm.org_id')
    .innerJoin('roles as r', 'r.id', 'm.role_id')
    .select(['t.id', 't.name', 't.slug', 'r.name as role'])
    .where('m.user_id', '=', userId)
    .where('m.accepted_at', 'is not', null)
    .where('t.deleted_at', 'is', null)
    .orderBy('t.name')
    .execute()
  return [
    ...partners.map((one) => ({ scope: 'partner' as const, ...one })),
    ...orgs.map((one) => ({ scope: 'organization' as const, ...one })),
  ]
}

/** Deletes expired challenges and sessions. */
export async function sweepSessions(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('login_challenges').where('expires_at', '<', now).execute()
  await db.deleteFrom('sessions').where('expires_at', '<', now).execute()
}
