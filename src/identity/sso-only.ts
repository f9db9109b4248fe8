import type { UserCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { listMemberships } from './memberships.ts'
import type { Membership, SessionContext } from './rules.ts'
import { checkNotSsoSession } from './sessions/rules.ts'
import { getUser, type User } from './store.ts'

/**
 * The organizations a person belongs to that take no passwords: the provider that people sign in with, the oldest
 * active one, is the only way in. Where a session is already, it is not asked.
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
 * The memberships that a password opens. One that nobody but an identity provider accepted is not among them: whoever
 * has the password may be another than whom the provider vouches for.
 */
export const filterPasswordMemberships = <M extends Membership>(
  memberships: readonly M[],
  ssoOnly: ReadonlySet<string>,
): M[] =>
  memberships.filter(
    (one) => one.acceptedBy !== 'provider' && (one.kind === 'partner' || !ssoOnly.has(one.orgId)),
  )

/**
 * Whether a person's password opens nothing that they belong to; an invitation is nothing yet. What nobody but a
 * provider accepted takes no password from whoever has one.
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

/** Whether a person may not be given a link to set a password, since single sign-on is the way in to all they have. */
export async function isResetUnusable(db: Db, user: User): Promise<boolean> {
  if (await isFederated(db, user)) return true
  if (!(await isPasswordUnusable(db, user))) return false
  // It is how an address is proved, without which nobody accepts an invitation of another tenant.
  if (user.passwordHash === null || user.emailProvedAt !== null) return true
  return !(await listMemberships(db, user.id)).some((one) => one.invited)
}

/** Whether a person has no password because identity providers vouch for them wherever they belong. */
async function isFederated(db: Db, user: Pick<User, 'id' | 'passwordHash'>): Promise<boolean> {
  if (user.passwordHash !== null) return false
  const vouched = await db
    .selectFrom('sso_identities as i')
    .innerJoin('sso_providers as p', 'p.id', 'i.provider_id')
    .select('p.org_id')
    .where('i.user_id', '=', user.id)
    .execute()
  if (vouched.length === 0) return false
  const orgs = new Set(vouched.map((row) => row.org_id))
  const own = (await listMemberships(db, user.id)).filter((one) => one.acceptedBy === 'holder')
  return own.every((one) => one.kind === 'organization' && orgs.has(one.orgId))
}

/** Whether a person's password does not open the organization they would come in to. */
export const isSsoOnly = async (db: Db, userId: string, context: SessionContext): Promise<boolean> =>
  context.kind === 'organization' && (await listSsoOnly(db, userId)).has(context.orgId)

/**
 * Whether a session may see and change what belongs to the account and not to one tenant: a session of single sign-on
 * only where its organization is all that the person belongs to. Whoever runs the provider could be anybody there, and
 * nobody anywhere else; nor does its word alone make it the keeper of somebody who has a password.
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
 * A factor guards the password too, and with it what an identity provider has no say in: whoever came in by one leaves
 * it alone, unless the password opens nothing.
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
