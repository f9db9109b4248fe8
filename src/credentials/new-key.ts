import { invalid } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { holdInUse } from '../tenancy/hold.ts'
import { orgOfNew } from '../tenancy/org-of-new.ts'

/**
 * The organization a key is minted for; it stays in use until the transaction ends.
 * @throws invalid_request, org_access_denied, not_found, tenant_inactive
 */
export async function orgOfNewKey(db: Db, scope: Scope, wanted: string | undefined): Promise<string> {
  const orgId = await orgOfNew(db, scope, wanted)
  await holdInUse(db, { orgId })
  return orgId
}

/** @throws invalid_request when a key would be born expired */
export function checkExpiry(expiresAt: Instant | null | undefined, now: Instant): void {
  if (expiresAt === undefined || expiresAt === null || expiresAt > now) return
  throw invalid([{ path: 'body.expiresAt', message: 'must be in the future' }])
}
