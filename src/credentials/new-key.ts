import { invalid } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
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

/** @throws invalid_request when a new key would already be expired */
export function checkExpiry(expiresAt: Instant | null | undefined, now: Instant): void {
  if (expiresAt === undefined || expiresAt === null || expiresAt > now) return
  throw invalid([{ path: 'body.expiresAt', message: 'must be in the future' }])
}
