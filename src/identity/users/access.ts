import { invalid } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Db } from '../../storage/open.ts'
import { inScope, inSites } from '../../storage/query/scope.ts'
import type { OrgAccess, PartnerAccess } from '../memberships.ts'
import type { Tenant } from '../rules.ts'
import type { AccessChange } from './contract.ts'
import type { MembershipRecord } from './rules.ts'

/** What a membership may be given, as far as its fields say. @throws invalid_request */
export function checkAccessFields(
  kind: Tenant['kind'],
  wanted: AccessChange,
  before: Pick<MembershipRecord, 'orgAccess' | 'orgIds'>,
): void {
  if (kind === 'partner') partnerAccessOf(wanted, before)
  else refuseFields(wanted, ['orgAccess', 'orgIds'], 'partner')
}

function partnerAccessOf(
  wanted: AccessChange,
  before: Pick<MembershipRecord, 'orgAccess' | 'orgIds'>,
): PartnerAccess {
  refuseFields(wanted, ['siteIds', 'deviceGroupIds'], 'organization')
  const orgAccess = wanted.orgAccess ?? before.orgAccess ?? 'none'
  if (orgAccess !== 'selected') {
    const message = 'orgIds can only be provided when orgAccess is selected'
    if (wanted.orgIds !== undefined) throw invalid([{ path: 'body.orgIds', message }], message)
    return { orgAccess, orgIds: [] }
  }
  const orgIds = wanted.orgIds ?? before.orgIds ?? []
  const message = 'orgIds required when orgAccess is selected'
  // Whoever selected organizations that are deleted by now may stay as they are.
  const isUnchanged = before.orgAccess === 'selected' && (before.orgIds ?? []).length === 0
  if (orgIds.length === 0 && !isUnchanged) throw invalid([{ path: 'body.orgIds', message }], message)
  return { orgAccess, orgIds }
}

/** The access that a partner membership may get. @throws invalid_request */
export async function resolvePartnerAccess(
  db: Db,
  scope: Scope,
  partnerId: string,
  wanted: AccessChange,
  before: Pick<MembershipRecord, 'orgAccess' | 'orgIds'>,
): Promise<PartnerAccess> {
  const access = partnerAccessOf(wanted, before)
  if (access.orgAccess !== 'selected') return access
  const found = await db
    .selectFrom('organizations')
    .select('id')
    .where('partner_id', '=', partnerId)
    .where('deleted_at', 'is', null)
    .where(inScope(scope, 'organizations.id'))
    .execute()
  checkAllFound(wanted.orgIds ?? [], found, 'orgIds', 'is not an organization of this partner')
  return access
}

/** The access that an organization membership may get. @throws invalid_request */
export async function resolveOrgAccess(
  db: Db,
  scope: Scope,
  orgId: string,
  wanted: AccessChange,
  before: Pick<MembershipRecord, 'siteIds' | 'deviceGroupIds'>,
): Promise<OrgAccess> {
  checkAccessFields('organization', wanted, { orgAccess: null, orgIds: null })
  if (wanted.siteIds) {
    const found = await db
      .selectFrom('sites')
      .select('id')
      .where('org_id', '=', orgId)
      .where(inScope(scope, 'sites.org_id'))
      .where(inSites(scope, 'sites.id'))
      .execute()
    checkAllFound(wanted.siteIds, found, 'siteIds', 'is not a site of this organization')
  }
  if (wanted.deviceGroupIds) {
    const found = await db
      .selectFrom('device_groups')
      .select('id')
      .where('org_id', '=', orgId)
      .where(inScope(scope, 'device_groups.org_id'))
      .execute()
    const mine = scope.kind === 'organization' ? scope.groupIds : null
    const seen = found.filter(({ id }) => mine === null || mine.includes(id))
    checkAllFound(wanted.deviceGroupIds, seen, 'deviceGroupIds', 'is not a device group of this organization')
  }
  const { siteIds = before.siteIds, deviceGroupIds: groupIds = before.deviceGroupIds } = wanted
  return { siteIds, groupIds }
}

function refuseFields(wanted: AccessChange, fields: (keyof AccessChange)[], kind: Tenant['kind']): void {
  const faults = fields
    .filter((field) => wanted[field] !== undefined)
    .map((field) => ({ path: `body.${field}`, message: `${field} is only valid for ${kind} scope` }))
  if (faults.length > 0) throw invalid(faults, faults[0]!.message)
}

function checkAllFound(
  ids: readonly string[],
  found: { id: string }[],
  field: string,
  message: string,
): void {
  const known = new Set(found.map(({ id }) => id))
  const faults = ids.flatMap((id, at) => (known.has(id) ? [] : [{ path: `body.${field}.${at}`, message }]))
  if (faults.length > 0) throw invalid(faults)
}
