import { Problem } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Db } from '../storage/open.ts'
import { checkOrg, findOrg, getPartner } from '../tenancy/store.ts'
import { contextOfScope, scopeOfTenant, type Tenant } from './rules.ts'

export type TenantQuery = { orgId?: string | undefined; partnerId?: string | undefined }

/**
 * The tenant named in a request: an organization, which must belong to the partner when both are named, or a
 * partner.
 * @throws partner_mismatch, org_access_denied, not_found
 */
export async function findNamedTenant(
  db: Db,
  scope: Scope,
  { orgId, partnerId }: TenantQuery,
): Promise<Tenant | undefined> {
  if (partnerId !== undefined) {
    if (scope.kind === 'system') await getPartner(db, partnerId)
    else if (scope.kind !== 'partner' || scope.partnerId !== partnerId) throw new Problem('partner_mismatch')
  }
  if (orgId !== undefined) {
    await checkOrg(db, scope, orgId)
    const org = partnerId === undefined ? undefined : await findOrg(db, scope, orgId)
    if (org?.partnerId !== partnerId) throw new Problem('not_found', 'Organization not found')
    return { kind: 'organization', orgId }
  }
  return partnerId === undefined ? undefined : { kind: 'partner', partnerId }
}

/** The tenant named in a request, else the caller's own; undefined when a system administrator names none. */
export async function findTenant(db: Db, scope: Scope, requested: TenantQuery): Promise<Tenant | undefined> {
  const context = contextOfScope(scope)
  return (await findNamedTenant(db, scope, requested)) ?? (context.kind === 'system' ? undefined : context)
}

/** @throws tenant_required, and what `findTenant` throws */
export async function getTenant(db: Db, scope: Scope, requested: TenantQuery): Promise<Tenant> {
  const tenant = await findTenant(db, scope, requested)
  if (!tenant) throw new Problem('tenant_required')
  return tenant
}

/** The caller's scope within the named tenant; their whole scope when none is named. */
export async function getNamedScope(db: Db, scope: Scope, requested: TenantQuery): Promise<Scope> {
  const tenant = await findNamedTenant(db, scope, requested)
  return tenant ? scopeOfTenant(tenant) : scope
}
