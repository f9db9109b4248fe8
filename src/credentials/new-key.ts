import type { Scope } from '../core/scope.ts'
import type { Db } from '../storage/open.ts'
import { lockTenantInUse } from '../tenancy/access.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'

/**
 * The organization that a new key is for; it cannot go out of use until the transaction ends.
 * @throws invalid_request, org_access_denied, not_found, tenant_inactive
 */
export async function resolveKeyOrg(db: Db, scope: Scope, wanted: string | undefined): Promise<string> {
  const orgId = await resolveOrg(db, scope, wanted)
  await lockTenantInUse(db, { orgId })
  return orgId
}
