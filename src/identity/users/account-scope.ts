import type { Expression, ExpressionBuilder, SqlBool } from 'kysely'
import { type Scope, systemScope } from '../../core/scope.ts'
import type { Db } from '../../storage/open.ts'
import { inScope } from '../../storage/query/scope.ts'
import type { Tables } from '../../storage/schema/tables.ts'
import { listMembershipRecords } from './memberships.ts'
import { type Account, isProviderInvitation } from './rules.ts'

type Users = ExpressionBuilder<Tables, 'users'>

/** The memberships of a user in live tenants: those within the scope, or all others. */
function membershipsOf(users: Users, scope: Scope, which: 'within' | 'beyond') {
  const chosen = (within: Expression<SqlBool>) => (which === 'within' ? within : users.not(within))
  const partners = users
    .selectFrom('partner_memberships as m')
    .innerJoin('partners as p', 'p.id', 'm.partner_id')
    .whereRef('m.user_id', '=', 'users.id')
    .where('p.deleted_at', 'is', null)
    .where((eb) => chosen(scope.kind === 'partner' ? eb('p.id', '=', scope.partnerId) : eb('p.id', '=', '')))
    .select((eb) => ['m.accepted_at', 'm.accepted_by', eb.lit<number>(0).as('provisioned')])
  const organizations = users
    .selectFrom('organization_memberships as m')
    .innerJoin('organizations as o', 'o.id', 'm.org_id')
    .whereRef('m.user_id', '=', 'users.id')
    .where('o.deleted_at', 'is', null)
    .where(chosen(inScope(scope, 'm.org_id')))
    .select(['m.accepted_at', 'm.accepted_by', 'm.provisioned'])
  return users.selectFrom(partners.unionAll(organizations).as('x'))
}

/**
 * Whether an account is wholly in scope: the caller sees its profile and changes what belongs to it.
 * Memberships added by another tenant without the holder, by invitation or by its own provider's sign-in, take
 * nothing away from the tenant that had the account before. An invitation gives no control over an account that
 * is in use.
 */
export function whollyInScope(users: Users, scope: Scope): Expression<SqlBool> {
  if (scope.kind === 'system') return users.lit(true)
  const mine = () => membershipsOf(users, scope, 'within')
  const others = () => membershipsOf(users, scope, 'beyond')
  const accepted = mine().where('x.accepted_at', 'is not', null)
  const since = accepted.select((eb) => eb.fn.min('x.accepted_at').as('since'))
  const before = others().where((eb) =>
    eb.and([
      eb('x.accepted_at', 'is not', null),
      eb.or([eb('x.accepted_by', '!=', 'provider'), eb('x.accepted_at', '<=', since)]),
    ]),
  )
  const invited = others().where((eb) =>
    eb.or([eb('x.accepted_at', 'is not', null), eb('x.provisioned', '=', 0)]),
  )
  const is = (query: ReturnType<typeof mine>) => users.exists(query.select('x.accepted_at'))
  return users.and([
    users('users.is_system', '=', 0),
    users.or([
      users.and([
        is(accepted),
        // A provider's assertion alone gives no control over a person who has a password of their own.
        users.or([
          is(mine().where('x.accepted_by', '=', 'holder')),
          users('users.password_hash', 'is', null),
        ]),
        users.not(is(before)),
      ]),
      users.and([
        users('users.status', '=', 'invited'),
        users.not(is(accepted)),
        is(mine().where('x.provisioned', '=', 0)),
        users.not(is(invited)),
      ]),
    ]),
  ])
}

/** The accounts that are wholly in scope. */
export async function listWhollyInScope(
  db: Db,
  scope: Scope,
  accounts: readonly Pick<Account, 'id'>[],
): Promise<Set<string>> {
  const ids = accounts.map(({ id }) => id)
  if (scope.kind === 'system' || ids.length === 0) return new Set(ids)
  const found = db.selectFrom('users').select('users.id').where('users.id', 'in', ids)
  const rows = await found.where((eb) => whollyInScope(eb, scope)).execute()
  return new Set(rows.map(({ id }) => id))
}

export const isWhollyInScope = async (db: Db, scope: Scope, account: Pick<Account, 'id'>): Promise<boolean> =>
  (await listWhollyInScope(db, scope, [account])).has(account.id)

/**
 * Whether no tenant outside the scope has invited a person, accepted or not; invitations by a provider do not
 * count.
 */
export async function isOnlyInvitedInScope(
  db: Db,
  scope: Scope,
  account: Pick<Account, 'id' | 'isSystem'>,
): Promise<boolean> {
  if (account.isSystem) return scope.kind === 'system'
  const mine = new Set((await listMembershipRecords(db, scope, [account.id])).map(({ id }) => id))
  const all = await listMembershipRecords(db, systemScope, [account.id])
  return all.every((one) => mine.has(one.id) || isProviderInvitation(one))
}
