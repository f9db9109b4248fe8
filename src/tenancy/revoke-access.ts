import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import type { endedWithTenant } from './partners/contract.ts'

/**
 * Revokes the access of a tenant that is suspended, churned or deleted, for good: API keys, enrollment keys and
 * sessions. They belong to later capabilities, which provide this function.
 */
type RevokeAccess = (db: Db, scope: Scope, now: Instant) => Promise<void>

/** How many records `RevokeAccess` and the end of the tenant would affect. */
type CountAccess = (
  db: Db,
  scope: Scope,
  now: Instant,
) => Promise<{ [kind in keyof typeof endedWithTenant]: number }>

/** Forgets what is only about a tenant that exists, such as which files describe it, when the tenant is deleted. */
type ForgetTenant = (db: Db, scope: Scope) => Promise<void>

export type AccessOfTenants = {
  revokeAccess: RevokeAccess
  countAccess: CountAccess
  forgetTenant: ForgetTenant
}
