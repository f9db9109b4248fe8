import { Problem } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Caller } from '../handler.ts'
import { scopeOfTenant } from '../identity/rules.ts'
import { findNamedTenant, type TenantQuery } from '../identity/tenant.ts'
import type { Db, Storage } from '../storage/open.ts'
import { findOrg, scopeWithin } from '../tenancy/store.ts'
import type { CallContext } from './ports.ts'
import type { SetOwner } from './store.ts'

export type ConfiguredTenant = { scope: Scope; owner: SetOwner }

/**
 * The tenant whose configuration it is.
 * @throws tenant_required, org_access_denied, partner_mismatch, not_found
 */
export async function findConfiguredTenant(
  db: Db,
  scope: Scope,
  named: TenantQuery,
): Promise<ConfiguredTenant> {
  const tenant = await findNamedTenant(db, scope, named)
  // A member of a partner who names it still reaches only the organizations of the membership.
  const isWider = tenant?.kind === 'partner' && scope.kind === 'system'
  const within = isWider ? scopeOfTenant(tenant) : await scopeWithin(db, scope, named.orgId)
  if (within.kind === 'system') throw new Problem('tenant_required')
  if (within.kind === 'partner') return { scope: within, owner: { partnerId: within.partnerId, orgId: null } }
  const org = await findOrg(db, within, within.orgId)
  if (!org) throw new Problem('not_found', 'Organization not found')
  return { scope: within, owner: { partnerId: org.partnerId, orgId: org.id } }
}

/** Facts for the audit entry of a refusal, which belongs to the organization that was named, and not to that of the caller. */
export const refusalFacts = ({ owner: { orgId } }: ConfiguredTenant, set: string) => ({
  orgId,
  details: { configuration: { set } },
})

/** The caller sees the tenant alone; what they may call is decided as they were admitted. */
export function withScope(on: CallContext, scope: Scope): CallContext {
  return 'scope' in on.caller ? { ...on, caller: { ...on.caller, scope } as Caller } : on
}

export function callerName(caller: Caller): string {
  if (caller.kind === 'user') return caller.email
  return 'name' in caller ? caller.name : caller.kind
}

/** Carries what was found out of the transaction that it rolls back. */
class RolledBack<T> extends Error {
  readonly result: T

  constructor(found: T) {
    super('planned')
    this.result = found
  }
}

/** What a transaction finds that is rolled back. */
export async function rehearse<T>(storage: Pick<Storage, 'write'>, work: (tx: Db) => Promise<T>): Promise<T> {
  try {
    return await storage.write(async (tx): Promise<never> => {
      throw new RolledBack(await work(tx))
    })
  } catch (error) {
    if (error instanceof RolledBack) return error.result as T
    throw error
  }
}
