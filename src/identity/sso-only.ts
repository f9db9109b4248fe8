import type { Db } from '../storage/open.ts'
import { listMemberships } from './memberships.ts'
import type { Membership } from './rules.ts'

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

/** The memberships that a password opens. */
export const openByPassword = <M extends Membership>(
  memberships: readonly M[],
  ssoOnly: ReadonlySet<string>,
): M[] => memberships.filter((one) => one.kind === 'partner' || !ssoOnly.has(one.orgId))

/** Whether a person's password opens nothing: every membership they have is of an organization that takes none. */
export async function isPasswordUseless(db: Db, user: { id: string; isSystem: boolean }): Promise<boolean> {
  if (user.isSystem) return false
  const ssoOnly = await listSsoOnly(db, user.id)
  return ssoOnly.size > 0 && openByPassword(await listMemberships(db, user.id), ssoOnly).length === 0
}
