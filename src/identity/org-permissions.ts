import type { Db } from '../storage/open.ts'
import { findGrants, listMemberships } from './memberships.ts'
import { findUser } from './store.ts'

/**
 * A person's permissions in one organization, through any of their memberships, and the part of it they apply
 * to.
 */
export type OrgPermissions = {
  permissions: ReadonlySet<string>
  /** null: all sites. */
  siteIds: readonly string[] | null
  groupIds: readonly string[] | null
}

const nothing: OrgPermissions = { permissions: new Set(), siteIds: [], groupIds: [] }
const whole = { siteIds: null, groupIds: null }

/** Reads the current permissions; none for a person who is disabled, deleted, or not of this organization. */
export async function findOrgPermissions(
  db: Db,
  userId: string,
  org: { id: string; partnerId: string },
): Promise<OrgPermissions> {
  const user = await findUser(db, userId)
  if (user?.status !== 'active') return nothing
  if (user.isSystem) return { permissions: new Set(['*:*']), ...whole }
  const memberships = (await listMemberships(db, userId)).filter((one) =>
    one.kind === 'organization'
      ? one.orgId === org.id
      : one.partnerId === org.partnerId && (one.orgs === 'all' || one.orgs.includes(org.id)),
  )
  const usable = memberships.filter((one) => one.usable)
  const grants = await Promise.all(usable.map((one) => findGrants(db, one.roleId)))
  const permissions = new Set(grants.flatMap((one) => [...one.permissions]))
  // A person has at most one membership in the organization; one in its partner gives access to all of it.
  const [first] = usable
  if (usable.length !== 1 || first?.kind !== 'organization')
    return { ...nothing, ...(first && whole), permissions }
  return { permissions, siteIds: first.siteIds, groupIds: first.groupIds }
}
