import type { Db } from '../storage/open.ts'
import { findGrants, listMemberships } from './memberships.ts'
import { findUser } from './store.ts'

/** What a person may do in one organization, whichever membership lets them; `siteIds` null: in all of it. */
export type Reach = { permissions: ReadonlySet<string>; siteIds: readonly string[] | null }

const nothing: Reach = { permissions: new Set(), siteIds: [] }

/** As the database says now; nothing for a person who is disabled, gone, or not of this organization. */
export async function findReach(
  db: Db,
  userId: string,
  org: { id: string; partnerId: string },
): Promise<Reach> {
  const user = await findUser(db, userId)
  if (user?.status !== 'active') return nothing
  if (user.isSystem) return { permissions: new Set(['*:*']), siteIds: null }
  const memberships = (await listMemberships(db, userId)).filter((one) =>
    one.kind === 'organization'
      ? one.orgId === org.id
      : one.partnerId === org.partnerId && (one.orgs === 'all' || one.orgs.includes(org.id)),
  )
  const permissions = new Set<string>()
  let siteIds: readonly string[] | null = []
  for (const one of memberships) {
    if (!one.usable) continue
    for (const permission of (await findGrants(db, one.roleId)).permissions) permissions.add(permission)
    const seen: readonly string[] | null = one.kind === 'organization' ? one.siteIds : null
    siteIds = siteIds === null || seen === null ? null : [...new Set([...siteIds, ...seen])]
  }
  return { permissions, siteIds }
}
