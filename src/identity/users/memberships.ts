import type { IdPage } from '../../core/page.ts'
import { type Scope, systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { readById } from '../../storage/query/pages.ts'
import { inPartner, inScope } from '../../storage/query/scope.ts'
import type { PartnerMembershipRow } from '../../storage/schema/tables.ts'
import type { MembershipRecord } from './rules.ts'

/** The memberships of these users within the scope, in live tenants; oldest first. */
export async function listMembershipRecords(
  db: Db,
  scope: Scope,
  userIds: readonly string[],
): Promise<MembershipRecord[]> {
  if (userIds.length === 0) return []
  const partners = await listPartnerMemberships(db, scope, userIds)
  const orgs = await listOrgMemberships(db, scope, userIds)
  return [...partners, ...orgs].sort((a, b) => (`${a.createdAt} ${a.id}` < `${b.createdAt} ${b.id}` ? -1 : 1))
}

async function listPartnerMemberships(
  db: Db,
  scope: Scope,
  userIds: readonly string[],
): Promise<MembershipRecord[]> {
  if (scope.kind === 'organization') return []
  const rows = await db
    .selectFrom('partner_memberships as m')
    .innerJoin('partners as p', 'p.id', 'm.partner_id')
    .innerJoin('roles as r', 'r.id', 'm.role_id')
    .selectAll('m')
    .select('r.name as role_name')
    .where('m.user_id', 'in', userIds)
    .where('p.deleted_at', 'is', null)
    .$if(scope.kind === 'partner', (q) =>
      q.where('m.partner_id', '=', (scope as { partnerId: string }).partnerId),
    )
    .execute()
  const selected = rows.filter((row) => row.org_access === 'selected').map(({ id }) => id)
  const granted = await db
    .selectFrom('partner_membership_orgs')
    .selectAll()
    .where('membership_id', 'in', selected.length > 0 ? selected : [''])
    .where(inScope(systemScope, 'org_id'))
    .orderBy('org_id')
    .execute()
  return rows.map((row) => ({
    id: row.id,
    userId: row.user_id,
    tenant: { kind: 'partner', partnerId: row.partner_id },
    roleId: row.role_id,
    roleName: row.role_name,
    orgAccess: row.org_access as MembershipRecord['orgAccess'],
    orgIds:
      row.org_access === 'selected'
        ? granted.filter((one) => one.membership_id === row.id).map((one) => one.org_id)
        : null,
    siteIds: null,
    deviceGroupIds: null,
    provisioned: false,
    ...acceptanceFields(row),
  }))
}

type AcceptanceColumn =
  | 'disabled_at'
  | 'accepted_at'
  | 'accepted_by'
  | 'invited_name'
  | 'invited_email'
  | 'created_at'

const acceptanceFields = (row: Pick<PartnerMembershipRow, AcceptanceColumn>) => ({
  disabledAt: row.disabled_at,
  acceptedAt: row.accepted_at,
  acceptedBy: row.accepted_by as MembershipRecord['acceptedBy'],
  invitedName: row.invited_name,
  invitedEmail: row.invited_email,
  createdAt: row.created_at,
})

async function listOrgMemberships(
  db: Db,
  scope: Scope,
  userIds: readonly string[],
): Promise<MembershipRecord[]> {
  const rows = await db
    .selectFrom('organization_memberships as m')
    .innerJoin('organizations as o', 'o.id', 'm.org_id')
    .innerJoin('roles as r', 'r.id', 'm.role_id')
    .selectAll('m')
    .select('r.name as role_name')
    .where('m.user_id', 'in', userIds)
    .where('o.deleted_at', 'is', null)
    .where(inScope(scope, 'm.org_id'))
    .execute()
  const narrowed = rows.filter((row) => row.narrowed === 1 || row.grouped === 1).map(({ id }) => id)
  const ids = narrowed.length > 0 ? narrowed : ['']
  const sites = await db
    .selectFrom('organization_membership_sites')
    .selectAll()
    .where('membership_id', 'in', ids)
    .orderBy('site_id')
    .execute()
  const groups = await db
    .selectFrom('organization_membership_groups')
    .selectAll()
    .where('membership_id', 'in', ids)
    .orderBy('group_id')
    .execute()
  return rows.map((row) => ({
    id: row.id,
    userId: row.user_id,
    tenant: { kind: 'organization', orgId: row.org_id },
    roleId: row.role_id,
    roleName: row.role_name,
    orgAccess: null,
    orgIds: null,
    siteIds: row.narrowed
      ? sites.filter((one) => one.membership_id === row.id).map((one) => one.site_id)
      : null,
    deviceGroupIds: row.grouped
      ? groups.filter((one) => one.membership_id === row.id).map((one) => one.group_id)
      : null,
    provisioned: row.provisioned === 1,
    ...acceptanceFields(row),
  }))
}

/** Ids of the memberships within the scope with those of their holders, by id. */
export async function listMembershipIds(
  db: Db,
  scope: Scope,
  page: IdPage,
): Promise<{ id: string; userId: string }[]> {
  const ofOrgs = db
    .selectFrom('organization_memberships as m')
    .innerJoin('organizations as o', 'o.id', 'm.org_id')
    .where('o.deleted_at', 'is', null)
    .where(inScope(scope, 'm.org_id'))
    .select(['m.id', 'm.user_id as userId'])
  const ofPartner = db
    .selectFrom('partner_memberships as m')
    .where(inPartner(scope, 'm.partner_id'))
    .select(['m.id', 'm.user_id as userId'])
  const all = db.selectFrom(ofOrgs.unionAll(ofPartner).as('m'))
  return readById(all, 'm.id', page, (q) => q.select(['m.id', 'm.userId']))
}

const tableOf = ({ tenant }: MembershipRecord) =>
  (tenant.kind === 'partner' ? 'partner_memberships' : 'organization_memberships') as 'partner_memberships'

export async function setRole(db: Db, held: MembershipRecord, roleId: string): Promise<void> {
  await db.updateTable(tableOf(held)).set({ role_id: roleId }).where('id', '=', held.id).execute()
}

/** `at`: when it was disabled; null enables it again. */
export async function setMembershipDisabled(
  db: Db,
  held: MembershipRecord,
  at: Instant | null,
): Promise<void> {
  await db.updateTable(tableOf(held)).set({ disabled_at: at }).where('id', '=', held.id).execute()
}

/** Turns a membership back into an invitation, which its holder has to accept. */
export async function resetAcceptance(db: Db, held: MembershipRecord): Promise<void> {
  const pending = { accepted_at: null, accepted_by: null, disabled_at: null }
  await db.updateTable(tableOf(held)).set(pending).where('id', '=', held.id).execute()
}

/** Sets the name of the recipient in an invitation. */
export async function renameInvited(db: Db, held: MembershipRecord, name: string): Promise<void> {
  await db.updateTable(tableOf(held)).set({ invited_name: name }).where('id', '=', held.id).execute()
}

export async function removeMembership(db: Db, held: MembershipRecord): Promise<void> {
  await db.deleteFrom(tableOf(held)).where('id', '=', held.id).execute()
}
