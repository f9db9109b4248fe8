import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'

/**
 * Takes from a tenant that is suspended, churned or deleted what does not come back with it: API keys,
 * enrollment keys and sessions. They belong to others, who say how.
 */
export type RevokeAccess = (db: Db, scope: Scope, now: Instant) => Promise<void>
