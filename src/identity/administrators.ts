import type { Db } from '../storage/open.ts'
import { forNoKeyUpdate } from '../storage/query/locks.ts'
import { findGrants, membershipIsInForce } from './memberships.ts'
import { isFullAdmin, type Tenant } from './rules.ts'

/**
 * Serializes changes to the roles and administrators of a tenant: finding a cycle of inheritance or the last
 * administrator takes several rows.
 */
export async function lockTenant(db: Db, tenant: Tenant): Promise<void> {
  if (tenant.kind === 'partner') {
    await forNoKeyUpdate(db.selectFrom('partners').select('id').where('id', '=', tenant.partnerId)).execute()
  } else {
    await forNoKeyUpdate(db.selectFrom('organizations').select('id').where('id', '=', tenant.orgId)).execute()
  }
}

/** Whether any active, enabled member with full access administers the tenant. `besides` leaves out one user. */
export async function hasFullAdmin(db: Db, tenant: Tenant, besides?: string): Promise<boolean> {
  // What is read here, both tables have.
  const members = membersWithFullAccess(db, tenant) as ReturnType<typeof membersOfOrg>
  const roles = members
    .innerJoin('users as u', 'u.id', 'm.user_id')
    .select('m.role_id')
    .distinct()
    .where(membershipIsInForce)
    .where('u.status', '=', 'active')
    .$if(besides !== undefined, (q) => q.where('m.user_id', '!=', besides!))
  for (const { role_id: roleId } of await roles.execute()) {
    if (isFullAdmin(tenant.kind, (await findGrants(db, roleId)).permissions)) return true
  }
  return false
}

/** As `isAdministrator` (users/rules.ts) says of one membership. */
const membersWithFullAccess = (db: Db, tenant: Tenant) =>
  tenant.kind === 'partner'
    ? db
        .selectFrom('partner_memberships as m')
        .where('m.partner_id', '=', tenant.partnerId)
        .where('m.org_access', '=', 'all')
    : membersOfOrg(db)
        .where('m.org_id', '=', tenant.orgId)
        .where('m.narrowed', '=', 0)
        .where('m.grouped', '=', 0)

const membersOfOrg = (db: Db) => db.selectFrom('organization_memberships as m')
