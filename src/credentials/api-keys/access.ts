import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { readOrgPermissions } from '../../identity/org-permissions.ts'
import type { Db } from '../../storage/open.ts'
import { effectivePermissions, type KeyAccess } from './rules.ts'
import { listUsableApiKeysBy } from './store.ts'

/** What the keys of some people may do, by the ids of the keys. */
export type AccessOfKeys = ReadonlyMap<string, KeyAccess>

/** What the keys in use within the scope may do that these people have made: whatever their creators may do now. */
export async function readAccessOfKeys(
  db: Db,
  scope: Scope,
  createdBy: readonly string[],
  now: Instant,
): Promise<AccessOfKeys> {
  const access = new Map<string, KeyAccess>()
  for (const userId of createdBy) {
    const keys = await listUsableApiKeysBy(db, scope, userId, now)
    if (keys.length === 0) continue
    const permissionsIn = await readOrgPermissions(db, userId)
    for (const { id, orgId, partnerId, scopes } of keys) {
      const { permissions: held, siteIds, groupIds } = await permissionsIn({ id: orgId, partnerId })
      const permissions = effectivePermissions(JSON.parse(scopes) as string[], held)
      access.set(id, { permissions, siteIds, groupIds })
    }
  }
  return access
}
