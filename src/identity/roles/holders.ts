import { offsetOf, type Page, type PageQuery, toPage, totalFrom } from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { inPartner, inScope } from '../../storage/query/scope.ts'
import { listWhollyInScope } from '../users/account-scope.ts'
import { listMembershipRecords } from '../users/memberships.ts'
import { toUser } from '../users/rules.ts'
import { findAccounts } from '../users/store.ts'
import type { Holder } from './contract.ts'

const ofPartners = (db: Db, scope: Scope, roleIds: readonly string[]) =>
  db
    .selectFrom('partner_memberships as m')
    .where('m.role_id', 'in', roleIds)
    .where(inPartner(scope, 'm.partner_id'))

const ofOrganizations = (db: Db, scope: Scope, roleIds: readonly string[]) =>
  db
    .selectFrom('organization_memberships as m')
    .where('m.role_id', 'in', roleIds)
    .where(inScope(scope, 'm.org_id'))

/** Number of holders of each of these roles, which are all of one kind. */
export async function countHolders(
  db: Db,
  scope: Scope,
  kind: string,
  roleIds: readonly string[],
): Promise<Map<string, number>> {
  if (roleIds.length === 0) return new Map()
  const rows =
    kind === 'partner'
      ? await ofPartners(db, scope, roleIds)
          .select((eb) => ['m.role_id', eb.fn.countAll<number>().as('total')])
          .groupBy('m.role_id')
          .execute()
      : await ofOrganizations(db, scope, roleIds)
          .select((eb) => ['m.role_id', eb.fn.countAll<number>().as('total')])
          .groupBy('m.role_id')
          .execute()
  return new Map(rows.map((row) => [row.role_id, row.total]))
}

const person = ['users.id', 'm.id as membership'] as const

/** Holders of a role, oldest membership first. */
export async function listHolders(
  db: Db,
  scope: Scope,
  role: { id: string; scope: string },
  page: PageQuery,
): Promise<Page<Holder>> {
  const [partners, organizations] = [ofPartners(db, scope, [role.id]), ofOrganizations(db, scope, [role.id])]
  const isPartner = role.scope === 'partner'
  const rows = isPartner
    ? await partners
        .innerJoin('users', 'users.id', 'm.user_id')
        .select(person)
        .orderBy('m.id')
        .limit(page.limit)
        .offset(offsetOf(page))
        .execute()
    : await organizations
        .innerJoin('users', 'users.id', 'm.user_id')
        .select(person)
        .orderBy('m.id')
        .limit(page.limit)
        .offset(offsetOf(page))
        .execute()
  const total = totalFrom(rows.length, page) ?? (await countRowsOf(isPartner ? partners : organizations))
  // As in the list of users: only the membership's own fields for an account that other tenants share.
  const ids = rows.map(({ id }) => id)
  const accounts = new Map((await findAccounts(db, ids)).map((one) => [one.id, one]))
  const held = new Map((await listMembershipRecords(db, scope, ids)).map((one) => [one.id, one]))
  const within = await listWhollyInScope(db, scope, [...accounts.values()])
  const data = rows.flatMap(({ id, membership }): Holder[] => {
    const [account, one] = [accounts.get(id), held.get(membership)]
    if (!account || !one) return []
    const { name, email, status, lastLoginAt, orgId, partnerId } = toUser(account, one, within.has(id))
    return [{ id, name, email, status, lastLoginAt, orgId, partnerId }]
  })
  return toPage(data, total, page)
}

/** All roles of a person, in any tenant. */
export async function listHeldRoles(db: Db, userId: string): Promise<string[]> {
  const partners = db.selectFrom('partner_memberships').select('role_id').where('user_id', '=', userId)
  const all = partners.union(
    db.selectFrom('organization_memberships').select('role_id').where('user_id', '=', userId),
  )
  return (await all.execute()).map((row) => row.role_id)
}
