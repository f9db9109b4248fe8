import type { UserCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { listMemberships } from './memberships.ts'
import type { Membership, SessionContext } from './rules.ts'
import { checkNotSsoSession } from './sessions/rules.ts'
import { getUser, type User } from './store.ts'

/**
 * The person's organizations that accept no passwords: their sign-in provider, the oldest active one, enforces
 * single sign-on. It does not apply to sessions that exist already.
 */
export async function listSsoOnly(db: Db, userId: string): Promise<Set<string>> {
  const rows = await db
    .selectFrom('organization_memberships as m')
    .innerJoin('sso_providers as p', 'p.org_id', 'm.org_id')
    .select(['m.org_id', 'p.enforce_sso'])
    .where('m.user_id', '=', userId)
    .where('p.status', '=', 'active')
    .orderBy('p.created_at')
    .orderBy('p.id')
    .execute()
  const first = new Map<string, number>()
  for (const { org_id: orgId, enforce_sso: enforces } of rows) {
    if (!first.has(orgId)) first.set(orgId, enforces)
  }
  return new Set([...first].flatMap(([orgId, enforces]) => (enforces === 1 ? orgId : [])))
}

/**
 * The memberships that a password gives access to. A membership accepted only by an identity provider is not
 * among them: the person who has the password may not be the one the provider asserts.
 */
export const filterPasswordMemberships = <M extends Membership>(
  memberships: readonly M[],
  ssoOnly: ReadonlySet<string>,
): M[] =>
  memberships.filter(
    (one) => one.acceptedBy !== 'provider' && (one.kind === 'partner' || !ssoOnly.has(one.orgId)),
  )

/**
 * Whether a person's password gives access to none of their memberships; an invitation does not count.
 * Memberships accepted only by a provider do not make the password unusable.
 */
export async function isPasswordUnusable(
  db: Db,
  user: Pick<User, 'id' | 'isSystem' | 'passwordHash'>,
): Promise<boolean> {
  if (user.isSystem) return false
  const joined = (await listMemberships(db, user.id)).filter((one) => one.acceptedBy !== null)
  const own = joined.filter((one) => one.acceptedBy === 'holder')
  if (own.length === 0) return user.passwordHash === null && joined.length > 0
  return filterPasswordMemberships(own, await listSsoOnly(db, user.id)).length === 0
}

/** Whether a person may not get a link to set a password, since all their access is by single sign-on. */
export async function isResetUnusable(db: Db, user: User): Promise<boolean> {
  if (await isFederated(db, user)) return true
  if (!(await isPasswordUnusable(db, user))) return false
  // The link also proves the address, which accepting an invitation of another tenant requires.
  if (user.passwordHash === null || user.emailProvedAt !== null) return true
  return !(await listMemberships(db, user.id)).some((one) => one.invited)
}

/** Whether a person has no password because identity providers sign them in to all their tenants. */
async function isFederated(db: Db, user: Pick<User, 'id' | 'passwordHash'>): Promise<boolean> {
  if (user.passwordHash !== null) return false
  const linked = await db
    .selectFrom('sso_identities as i')
    .innerJoin('sso_providers as p', 'p.id', 'i.provider_id')
    .select('p.org_id')
    .where('i.user_id', '=', user.id)
    .execute()
  if (linked.length === 0) return false
  const orgs = new Set(linked.map((row) => row.org_id))
  const own = (await listMemberships(db, user.id)).filter((one) => one.acceptedBy === 'holder')
  return own.every((one) => one.kind === 'organization' && orgs.has(one.orgId))
}

/** Whether the organization of the sign-in accepts no password. */
export const isSsoOnly = async (db: Db, userId: string, context: SessionContext): Promise<boolean> =>
  context.kind === 'organization' && (await listSsoOnly(db, userId)).has(context.orgId)

/**
 * Whether a session may see and change what belongs to the account rather than to one tenant. A single sign-on
 * session may only where its organization is the person's only tenant, since the provider's operator can act as
 * any member there. Nor does the provider's assertion alone give control over a person who has a password.
 */
export async function canManageAccount(
  db: Db,
  user: Pick<User, 'id' | 'isSystem'>,
  { ssoProviderId, scope }: Pick<UserCaller, 'ssoProviderId' | 'scope'>,
): Promise<boolean> {
  if (ssoProviderId === null) return true
  if (user.isSystem || scope.kind !== 'organization') return false
  const joined = (await listMemberships(db, user.id)).filter((one) => one.acceptedBy !== null)
  if (!joined.every((one) => one.kind === 'organization' && one.orgId === scope.orgId)) return false
  if (joined.some((one) => one.acceptedBy === 'holder')) return true
  return (await getUser(db, user.id)).passwordHash === null
}

/** @throws forbidden */
export async function checkCanManageAccount(
  db: Db,
  user: Pick<User, 'id' | 'isSystem'>,
  caller: Pick<UserCaller, 'ssoProviderId' | 'scope'>,
): Promise<void> {
  if (!(await canManageAccount(db, user, caller))) checkNotSsoSession(caller)
}

/**
 * A factor also guards the password, and so tenants that the identity provider has no authority over: a session
 * that began at a provider cannot change factors, unless the password gives access to nothing.
 * @throws forbidden
 */
export async function checkCanManageFactors(
  db: Db,
  user: Pick<User, 'id' | 'isSystem' | 'passwordHash'>,
  caller: Pick<UserCaller, 'ssoProviderId' | 'scope'>,
): Promise<void> {
  await checkCanManageAccount(db, user, caller)
  if (user.passwordHash === null || (await isPasswordUnusable(db, user))) return
  checkNotSsoSession(caller)
}
