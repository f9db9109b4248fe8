import type { IdPage } from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import type { Db } from '../../storage/open.ts'
import type { Tenant } from '../rules.ts'
import { listWhollyInScope } from './account-scope.ts'
import type { User } from './contract.ts'
import { listMembershipIds, listMembershipRecords } from './memberships.ts'
import { isSameTenant, toUser } from './rules.ts'
import { findAccounts } from './store.ts'

/** A person in one tenant, with the id of the membership beside that of the person. */
export type Member = Omit<User, 'id'> & { id: string; userId: string }

/** Everybody in the tenants within a scope: a person of several once in each. */
export async function listAllMembers(db: Db, scope: Scope, page: IdPage): Promise<Member[]> {
  const found = await listMembershipIds(db, scope, page)
  const members = await membersOf(db, scope, [...new Set(found.map(({ userId }) => userId))])
  const byId = new Map(members.map((one) => [one.id, one]))
  return found.flatMap(({ id }) => byId.get(id) ?? [])
}

/** A person in a tenant, if they are a member of it. */
export async function findMember(
  db: Db,
  scope: Scope,
  userId: string,
  tenant: Tenant,
): Promise<Member | undefined> {
  const isIn = ({ partnerId, orgId }: Member) =>
    isSameTenant(
      orgId === null ? { kind: 'partner', partnerId: partnerId! } : { kind: 'organization', orgId },
      tenant,
    )
  return (await membersOf(db, scope, [userId])).find(isIn)
}

async function membersOf(db: Db, scope: Scope, userIds: readonly string[]): Promise<Member[]> {
  const held = await listMembershipRecords(db, scope, userIds)
  const accounts = await findAccounts(db, userIds)
  const whole = await listWhollyInScope(db, scope, accounts)
  const byId = new Map(accounts.map((account) => [account.id, account]))
  return held.flatMap((one) => {
    const account = byId.get(one.userId)
    if (!account) return []
    return [{ ...toUser(account, one, whole.has(account.id)), id: one.id, userId: account.id }]
  })
}
