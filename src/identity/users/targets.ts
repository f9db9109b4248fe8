import { Problem } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { UserCaller, WorkloadCaller } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { hasFullAdmin, lockTenant } from '../administrators.ts'
import { findGrants } from '../memberships.ts'
import type { Tenant } from '../rules.ts'
import { listMembershipRecords } from './memberships.ts'
import * as rules from './rules.ts'
import { findAccount } from './store.ts'

/** The user that a change targets. `held`: their memberships in the caller's scope; `one`: the selected one. */
export type Target = {
  account: rules.Account
  held: rules.MembershipRecord[]
  one: rules.MembershipRecord | undefined
}

export const userNotFound = () => new Problem('not_found', 'User not found')

/** A user within the caller's scope. @throws not_found, also for all other users */
export async function findTarget(
  db: Db,
  scope: Scope,
  id: string,
  requested: Tenant | undefined,
  part: 'query' | 'body' = 'query',
): Promise<Target> {
  const account = await findAccount(db, id)
  const held = account ? await listMembershipRecords(db, scope, [id]) : []
  if (!account || (held.length === 0 && scope.kind !== 'system')) throw userNotFound()
  const one = rules.selectMembership(held, requested, part)
  if (requested && !one) throw userNotFound()
  return { account, held, one }
}

/** The same with the tenants locked, so that their administrators do not change until the transaction ends. */
export const lockTarget = (
  db: Db,
  scope: Scope,
  id: string,
  requested: Tenant | undefined,
): Promise<Target> => lockAndFind(db, () => findTarget(db, scope, id, requested))

export const lockTargetAnywhere = (db: Db, scope: Scope, id: string): Promise<Target> =>
  lockAndFind(db, () => findTargetAnywhere(db, scope, id))

async function lockAndFind(db: Db, find: () => Promise<Target>): Promise<Target> {
  const { held } = await find()
  for (const tenant of rules.sortedTenants(held)) await lockTenant(db, tenant)
  return find()
}

/** @throws not_found */
export function getMembership({ one }: Target): rules.MembershipRecord {
  if (!one) throw new Problem('not_found', 'Membership not found')
  return one
}

/**
 * Refuses to manage a user who has more permissions or access than the caller.
 * @throws forbidden, site_access_denied
 */
export async function checkMayManageUser(
  db: Db,
  caller: Pick<UserCaller | WorkloadCaller, 'scope' | 'permissions'>,
  account: rules.Account,
  held: readonly rules.MembershipRecord[],
): Promise<void> {
  // A user with a pending invitation must not be distinguishable from any other.
  const isKnown = caller.scope.kind === 'system' || held.some(({ acceptedAt }) => acceptedAt !== null)
  if (account.isSystem && isKnown) rules.checkMayManage(caller.permissions, ['*:*'])
  if (account.isSystem && isKnown && caller.scope.kind !== 'system') {
    throw new Problem('forbidden', 'This user administers the service')
  }
  for (const one of held) {
    rules.checkMayManage(caller.permissions, (await findGrants(db, one.roleId)).permissions)
    rules.checkWithinAccess(caller.scope, one)
  }
}

/** Refuses to remove the last administrator of a tenant, which is locked. @throws last_administrator */
export async function checkNotLastAdmin(
  db: Db,
  account: rules.Account,
  one: rules.MembershipRecord,
): Promise<void> {
  if (account.status !== 'active' || rules.membershipStatus(account, one) !== 'active') return
  if (!rules.isAdministrator(one, (await findGrants(db, one.roleId)).permissions)) return
  if (await hasFullAdmin(db, one.tenant, account.id)) return
  throw new Problem(
    'last_administrator',
    'This is the last full administrator: make another one first, who counts once they have accepted the invitation',
  )
}

/** For changes to the person as a whole. */
export async function findTargetAnywhere(db: Db, scope: Scope, id: string): Promise<Target> {
  const account = await findAccount(db, id)
  const held = account ? await listMembershipRecords(db, scope, [id]) : []
  if (!account || (held.length === 0 && scope.kind !== 'system')) throw userNotFound()
  return { account, held, one: held[0] }
}
