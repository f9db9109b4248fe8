import type { Db } from '../storage/open.ts'
import { findGrants, listMemberships } from './memberships.ts'
import { findUser } from './store.ts'

/** What a person may do in one organization, whichever membership lets them, and in which part of it. */
export type OrgPermissions = {
  permissions: ReadonlySet<string>
  /** null: not narrowed. */
  siteIds: readonly string[] | null
  groupIds: readonly string[] | null
}

const nothing: OrgPermissions = { permissions: new Set(), siteIds: [], groupIds: [] }
const whole = { siteIds: null, groupIds: null }

/** As the database says now; nothing for a person who is disabled, gone, or not of this organization. */
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
  // There is one membership in the organization at most; beside it one in its partner sees all of it.
  const [first] = usable
  if (usable.length !== 1 || first?.kind !== 'organization')
    return { ...nothing, ...(first && whole), permissions }
  return { permissions, siteIds: first.siteIds, groupIds: first.groupIds }
}
