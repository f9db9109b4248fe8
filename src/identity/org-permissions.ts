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

type OrgOfPartner = { id: string; partnerId: string }

const nothing: OrgPermissions = { permissions: new Set(), siteIds: [], groupIds: [] }
const whole = { siteIds: null, groupIds: null }

/** Reads the current permissions; none for a person who is disabled, deleted, or not of this organization. */
export const findOrgPermissions = async (
  db: Db,
  userId: string,
  org: OrgOfPartner,
): Promise<OrgPermissions> => (await readOrgPermissions(db, userId))(org)

/** The same for any number of organizations: what is about the person alone is read once. */
export async function readOrgPermissions(
  db: Db,
  userId: string,
): Promise<(org: OrgOfPartner) => Promise<OrgPermissions>> {
  const user = await findUser(db, userId)
  if (user?.status !== 'active') return async () => nothing
  if (user.isSystem) return async () => ({ permissions: new Set(['*:*']), ...whole })
  const usable = (await listMemberships(db, userId)).filter((one) => one.usable)
  const grants = new Map<string, ReturnType<typeof findGrants>>()
  const grantsOf = (roleId: string) => {
    const found = grants.get(roleId) ?? findGrants(db, roleId)
    grants.set(roleId, found)
    return found
  }
  return async (org) => {
    const memberships = usable.filter((one) =>
      one.kind === 'organization'
        ? one.orgId === org.id
        : one.partnerId === org.partnerId && (one.orgs === 'all' || one.orgs.includes(org.id)),
    )
    const held = await Promise.all(memberships.map(({ roleId }) => grantsOf(roleId)))
    const permissions = new Set(held.flatMap((one) => [...one.permissions]))
    // A person has at most one membership in the organization; one in its partner gives access to all of it.
    const [first] = memberships
    if (memberships.length !== 1 || first?.kind !== 'organization')
      return { ...nothing, ...(first && whole), permissions }
    return { permissions, siteIds: first.siteIds, groupIds: first.groupIds }
  }
}
