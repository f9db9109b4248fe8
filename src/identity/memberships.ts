import { expressionBuilder } from 'kysely'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { prepared } from '../storage/query/prepared.ts'
import type { Tables } from '../storage/schema/tables.ts'
import { isTenantUsable, isUsable } from '../tenancy/rules.ts'
import { mfaPolicyOf } from './factors/rules.ts'
import type { Membership, SessionContext, Tenant } from './rules.ts'

const eb = expressionBuilder<{ m: Tables['partner_memberships' | 'organization_memberships'] }, 'm'>()

/** Of the membership `m`: accepted and not disabled. Its account and its tenant may still be out of use. */
export const membershipIsInForce = eb.and([
  eb('m.accepted_at', 'is not', null),
  eb('m.disabled_at', 'is', null),
])

const partnerMemberships = prepared((db, p: { userId: string }) =>
  db
    .selectFrom('partner_memberships as m')
    .innerJoin('partners as p', 'p.id', 'm.partner_id')
    .select(['m.id', 'm.partner_id', 'm.role_id', 'm.org_access', 'p.status', 'p.deleted_at', 'p.settings'])
    .select(['m.disabled_at', 'm.accepted_at', 'm.accepted_by'])
    .where('m.user_id', '=', p.userId)
    .orderBy('m.created_at')
    .orderBy('m.id'),
)

const orgMemberships = prepared((db, p: { userId: string }) =>
  db
    .selectFrom('organization_memberships as m')
    .innerJoin('organizations as o', 'o.id', 'm.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .select([
      'm.id',
      'm.org_id',
      'm.role_id',
      'm.narrowed',
      'm.grouped',
      'm.disabled_at',
      'm.accepted_at',
      'm.accepted_by',
      'm.provisioned',
      'o.partner_id',
      'o.settings',
    ])
    .select(['o.status as org_status', 'o.deleted_at as org_deleted_at'])
    .select(['p.status as partner_status', 'p.deleted_at as partner_deleted_at'])
    .where('m.user_id', '=', p.userId)
    .orderBy('m.created_at')
    .orderBy('m.id'),
)

type MembershipDetails = Membership & { requiresMfa: boolean }
type RowOf<Q extends (...args: never[]) => Promise<unknown[]>> = Awaited<ReturnType<Q>>[number]

/** A person's memberships, oldest first. */
export async function listMemberships(db: Db, userId: string): Promise<MembershipDetails[]> {
  const partners = await partnerMemberships(db, { userId })
  const orgs = await orgMemberships(db, { userId })
  return Promise.all([
    ...partners.map((row) => toPartnerMembership(db, row)),
    ...orgs.map((row) => toOrgMembership(db, row)),
  ])
}

/** The current state of the membership that a session acts through. */
export async function findMembership(
  db: Db,
  userId: string,
  context: SessionContext,
): Promise<MembershipDetails | undefined> {
  if (context.kind === 'system') return undefined
  if (context.kind === 'partner') {
    const rows = await partnerMemberships(db, { userId })
    const row = rows.find((one) => one.partner_id === context.partnerId)
    return row && toPartnerMembership(db, row)
  }
  const row = (await orgMemberships(db, { userId })).find((one) => one.org_id === context.orgId)
  return row && toOrgMembership(db, row)
}

async function toPartnerMembership(
  db: Db,
  row: RowOf<typeof partnerMemberships>,
): Promise<MembershipDetails> {
  const accepted = row.accepted_at !== null
  const lives = row.disabled_at === null && row.deleted_at === null
  return {
    kind: 'partner',
    partnerId: row.partner_id,
    roleId: row.role_id,
    orgs:
      row.org_access === 'all' ? 'all' : row.org_access === 'none' ? [] : await listGrantedOrgs(db, row.id),
    acceptedBy: row.accepted_by as AcceptedBy | null,
    usable: accepted && lives && isUsable(row.status, row.deleted_at),
    invited: !accepted && lives && isUsable(row.status, row.deleted_at),
    pending: accepted && lives && row.status === 'pending',
    disabled: row.disabled_at !== null,
    requiresMfa: mfaPolicyOf([row.settings]).required,
  }
}

async function toOrgMembership(db: Db, row: RowOf<typeof orgMemberships>): Promise<MembershipDetails> {
  const accepted = row.accepted_at !== null
  const lives = row.disabled_at === null && isTenantUsable(row)
  return {
    kind: 'organization',
    orgId: row.org_id,
    partnerId: row.partner_id,
    roleId: row.role_id,
    siteIds: row.narrowed ? await listLimitedSites(db, row.id) : null,
    groupIds: row.grouped ? await listLimitedGroups(db, row.id) : null,
    disabled: row.disabled_at !== null,
    acceptedBy: row.accepted_by as AcceptedBy | null,
    usable: accepted && lives,
    invited: !accepted && lives,
    provisioned: row.provisioned === 1,
    requiresMfa: mfaPolicyOf([row.settings]).required,
  }
}

async function listGrantedOrgs(db: Db, membershipId: string): Promise<string[]> {
  const rows = await db
    .selectFrom('partner_membership_orgs')
    .select('org_id')
    .where('membership_id', '=', membershipId)
    .execute()
  return rows.map((row) => row.org_id)
}

async function listLimitedSites(db: Db, membershipId: string): Promise<string[]> {
  const rows = await db
    .selectFrom('organization_membership_sites')
    .select('site_id')
    .where('membership_id', '=', membershipId)
    .execute()
  return rows.map((row) => row.site_id)
}

async function listLimitedGroups(db: Db, membershipId: string): Promise<string[]> {
  const rows = await db
    .selectFrom('organization_membership_groups')
    .select('group_id')
    .where('membership_id', '=', membershipId)
    .execute()
  return rows.map((row) => row.group_id)
}

const roleChain = prepared((db, p: { roleId: string }) =>
  db
    .withRecursive('chain(id, parent_role_id, force_mfa)', (cte) =>
      cte
        .selectFrom('roles')
        .select(['id', 'parent_role_id', 'force_mfa'])
        .where('id', '=', p.roleId)
        .union(
          cte
            .selectFrom('roles')
            .innerJoin('chain', 'chain.parent_role_id', 'roles.id')
            .select(['roles.id', 'roles.parent_role_id', 'roles.force_mfa']),
        ),
    )
    .selectFrom('chain')
    .leftJoin('role_permissions', 'role_permissions.role_id', 'chain.id')
    .select(['chain.force_mfa', 'role_permissions.permission']),
)

/** Permissions that a role grants: its own and those of its whole parent chain. */
export async function findGrants(
  db: Db,
  roleId: string,
): Promise<{ permissions: Set<string>; forceMfa: boolean }> {
  const rows = await roleChain(db, { roleId })
  return {
    permissions: new Set(rows.flatMap((row) => (row.permission === null ? [] : [row.permission]))),
    forceMfa: rows.some((row) => row.force_mfa === 1),
  }
}

export async function findRoleName(db: Db, roleId: string): Promise<string | undefined> {
  const row = await db.selectFrom('roles').select('name').where('id', '=', roleId).executeTakeFirst()
  return row?.name
}

/** Access of a membership within its tenant. */
export type PartnerAccess = { orgAccess: 'all' | 'selected' | 'none'; orgIds: readonly string[] }
export type OrgAccess = { siteIds: readonly string[] | null; groupIds: readonly string[] | null }

/** Who accepted a membership: its holder, or the identity provider of the organization. */
export type AcceptedBy = 'holder' | 'provider'

/** Initial state of a membership: accepted, unless it is an invitation. */
type Acceptance = { acceptedBy?: AcceptedBy | null; invited?: { name: string; email: string } }

const acceptanceColumns = ({ acceptedBy = 'holder', invited }: Acceptance, now: Instant) => ({
  accepted_at: acceptedBy === null ? null : now,
  accepted_by: acceptedBy,
  invited_name: invited?.name ?? null,
  invited_email: invited?.email ?? null,
})

export async function joinPartner(
  db: Db,
  membership: {
    partnerId: string
    userId: string
    roleId: string
    orgs: 'all' | readonly string[]
  } & Acceptance,
  now: Instant,
): Promise<void> {
  const { partnerId, userId, roleId, orgs } = membership
  const id = newId()
  const orgAccess = orgs === 'all' ? 'all' : orgs.length === 0 ? 'none' : 'selected'
  const columns = { id, partner_id: partnerId, user_id: userId, role_id: roleId, created_at: now }
  await db
    .insertInto('partner_memberships')
    .values({ ...columns, ...acceptanceColumns(membership, now), org_access: orgAccess, disabled_at: null })
    .execute()
  await insertOrgs(db, id, orgs === 'all' ? [] : orgs)
}

export async function joinOrganization(
  db: Db,
  membership: {
    orgId: string
    userId: string
    roleId: string
    siteIds: readonly string[] | null
    groupIds?: readonly string[] | null
    provisioned?: boolean
  } & Acceptance,
  now: Instant,
): Promise<void> {
  const { orgId, userId, roleId, siteIds, groupIds = null, provisioned = false } = membership
  const id = newId()
  const columns = { id, org_id: orgId, user_id: userId, role_id: roleId, created_at: now, disabled_at: null }
  await db
    .insertInto('organization_memberships')
    .values({
      ...columns,
      ...acceptanceColumns(membership, now),
      narrowed: siteIds === null ? 0 : 1,
      grouped: groupIds === null ? 0 : 1,
      provisioned: provisioned ? 1 : 0,
    })
    .execute()
  await insertSites(db, id, siteIds ?? [])
  await insertGroups(db, id, groupIds ?? [])
}

/** Accepts an invitation. A membership accepted by single sign-on alone is from then on open to passwords too. */
export async function acceptMembership(
  db: Db,
  userId: string,
  tenant: Tenant,
  by: AcceptedBy,
  now: Instant,
): Promise<void> {
  // Both tables have these columns; only the tenant's column differs.
  const [table, column, id] =
    tenant.kind === 'partner'
      ? (['partner_memberships', 'partner_id', tenant.partnerId] as const)
      : ([
          'organization_memberships' as 'partner_memberships',
          'org_id' as 'partner_id',
          tenant.orgId,
        ] as const)
  await db
    .updateTable(table)
    .set({ accepted_at: now, accepted_by: by })
    .where('user_id', '=', userId)
    .where(column, '=', id)
    .where('disabled_at', 'is', null)
    // A provider's acceptance does not replace the holder's.
    .where((eb) => eb.or([eb('accepted_at', 'is', null), eb('accepted_by', '=', 'provider')]))
    .execute()
}

/** Changes the access of a partner membership. */
export async function setPartnerAccess(
  db: Db,
  id: string,
  { orgAccess, orgIds }: PartnerAccess,
): Promise<void> {
  await db.updateTable('partner_memberships').set({ org_access: orgAccess }).where('id', '=', id).execute()
  await db.deleteFrom('partner_membership_orgs').where('membership_id', '=', id).execute()
  await insertOrgs(db, id, orgIds)
}

/** Changes the access of an organization membership. */
export async function setOrgAccess(db: Db, id: string, { siteIds, groupIds }: OrgAccess): Promise<void> {
  await db
    .updateTable('organization_memberships')
    .set({ narrowed: siteIds === null ? 0 : 1, grouped: groupIds === null ? 0 : 1 })
    .where('id', '=', id)
    .execute()
  await db.deleteFrom('organization_membership_sites').where('membership_id', '=', id).execute()
  await db.deleteFrom('organization_membership_groups').where('membership_id', '=', id).execute()
  await insertSites(db, id, siteIds ?? [])
  await insertGroups(db, id, groupIds ?? [])
}

async function insertOrgs(db: Db, id: string, orgIds: readonly string[]): Promise<void> {
  const rows = [...new Set(orgIds)].map((orgId) => ({ membership_id: id, org_id: orgId }))
  if (rows.length > 0) await db.insertInto('partner_membership_orgs').values(rows).execute()
}

async function insertSites(db: Db, id: string, siteIds: readonly string[]): Promise<void> {
  const rows = [...new Set(siteIds)].map((siteId) => ({ membership_id: id, site_id: siteId }))
  if (rows.length > 0) await db.insertInto('organization_membership_sites').values(rows).execute()
}

async function insertGroups(db: Db, id: string, groupIds: readonly string[]): Promise<void> {
  const rows = [...new Set(groupIds)].map((groupId) => ({ membership_id: id, group_id: groupId }))
  if (rows.length > 0) await db.insertInto('organization_membership_groups').values(rows).execute()
}
