import { invalid } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Db } from '../storage/open.ts'
import { checkOrg } from './store.ts'

/**
 * The organization a new record belongs to: inferred in organization scope, required elsewhere.
 * @throws invalid_request, org_access_denied, not_found
 */
export async function resolveOrg(db: Db, scope: Scope, wanted: string | undefined): Promise<string> {
  const orgId = wanted ?? (scope.kind === 'organization' ? scope.orgId : undefined)
  if (orgId === undefined) {
    const message = `orgId is required for ${scope.kind} scope`
    throw invalid([{ path: 'body.orgId', message }], message)
  }
  // A caller in organization scope is always in their own organization's scope.
  if (scope.kind !== 'organization' || orgId !== scope.orgId) await checkOrg(db, scope, orgId)
  return orgId
}
