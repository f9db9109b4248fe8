import type { UserCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { listMemberships } from './memberships.ts'
import type { Context, Membership } from './rules.ts'
import { checkBySso } from './sessions/rules.ts'
import type { User } from './store.ts'

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
export const openByPassword = <M extends Membership>(
  memberships: readonly M[],
  ssoOnly: ReadonlySet<string>,
): M[] =>
  memberships.filter(
    (one) => one.acceptedBy !== 'provider' && (one.kind === 'partner' || !ssoOnly.has(one.orgId)),
  )

/** Whether a person's password opens nothing that they belong to; an invitation is nothing yet. */
export async function isPasswordUseless(db: Db, user: { id: string; isSystem: boolean }): Promise<boolean> {
  if (user.isSystem) return false
  const accepted = (await listMemberships(db, user.id)).filter((one) => one.acceptedBy !== null)
  return accepted.length > 0 && openByPassword(accepted, await listSsoOnly(db, user.id)).length === 0
}

/** Whether a person's password does not open the organization they would come in to. */
export const isSsoOnly = async (db: Db, userId: string, context: Context): Promise<boolean> =>
  context.kind === 'organization' && (await listSsoOnly(db, userId)).has(context.orgId)

/**
 * Whether a session may see and change what belongs to the account and not to one tenant: a session of single sign-on
 * only where its organization is all that the person belongs to. Whoever runs the provider could be anybody there, and
 * nobody anywhere else.
 */
export async function isAccountWide(
  db: Db,
  user: Pick<User, 'id' | 'isSystem'>,
  { ssoProviderId, scope }: Pick<UserCaller, 'ssoProviderId' | 'scope'>,
): Promise<boolean> {
  if (ssoProviderId === null) return true
  if (user.isSystem || scope.kind !== 'organization') return false
  const memberships = await listMemberships(db, user.id)
  return memberships.every(
    (one) => one.acceptedBy === null || (one.kind === 'organization' && one.orgId === scope.orgId),
  )
}

/** @throws forbidden */
export async function checkAccountWide(
  db: Db,
  user: Pick<User, 'id' | 'isSystem'>,
  caller: Pick<UserCaller, 'ssoProviderId' | 'scope'>,
): Promise<void> {
  if (!(await isAccountWide(db, user, caller))) checkBySso(caller)
}

/**
 * A factor guards the password too, and with it what an identity provider has no say in: whoever came in by one leaves
 * it alone, unless the password opens nothing.
 * @throws forbidden
 */
export async function checkOwnsFactors(
  db: Db,
  user: Pick<User, 'id' | 'isSystem' | 'passwordHash'>,
  caller: Pick<UserCaller, 'ssoProviderId' | 'scope'>,
): Promise<void> {
  await checkAccountWide(db, user, caller)
  if (user.passwordHash === null || (await isPasswordUseless(db, user))) return
  checkBySso(caller)
}
