import type { ExpressionBuilder } from 'kysely'
import type { Page, PageQuery } from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { contains, idStartsWith } from '../../storage/query/expressions.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { readPage } from '../../storage/query/pages.ts'
import { inScope } from '../../storage/query/scope.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { RoleRow, Tables, UserRow } from '../../storage/schema/tables.ts'
import type { Tenant } from '../rules.ts'
import { contextKey } from '../sessions/store.ts'
import { endSessions, revokeSessions, revokingSessions } from '../store.ts'
import { whollyInScope } from './account-scope.ts'
import type { Account } from './rules.ts'

type AccountRow = Pick<UserRow, (typeof columns)[number]>

const accountRows = rowsOf<AccountRow>()({ flags: ['is_system', 'phone_verified'] })

/** All fields except credentials. */
const columns = [
  'id',
  'email',
  'name',
  'status',
  'avatar_url',
  'is_system',
  'mfa_method',
  'phone_number',
  'phone_verified',
  'last_login_at',
  'password_changed_at',
  'created_at',
  'updated_at',
] as const

/** Memberships of a tenant, as far as the scope includes it. */
export const membersOf = (db: Db, scope: Scope, tenant: Tenant) =>
  tenant.kind === 'partner'
    ? db
        .selectFrom('partner_memberships as m')
        // A partner is visible to its own users and the system.
        .where('m.partner_id', '=', scope.kind === 'partner' ? scope.partnerId : tenant.partnerId)
        .$if(scope.kind === 'organization', (q) => q.where('m.id', '=', ''))
    : db
        .selectFrom('organization_memberships as m')
        .where('m.org_id', '=', tenant.orgId)
        .where(inScope(scope, 'm.org_id'))

/** How many people are members of the tenant of a scope, or of an organization in it. */
export function countMembersIn(db: Db, scope: Scope): Promise<number> {
  const ofOrgs = db.selectFrom('organization_memberships').select('user_id').where(inScope(scope, 'org_id'))
  const partnerId = scope.kind === 'partner' ? scope.partnerId : ''
  const ofPartner = db.selectFrom('partner_memberships').select('user_id').where('partner_id', '=', partnerId)
  return countRowsOf(db.selectFrom(ofOrgs.union(ofPartner).as('members')))
}

type Query = PageQuery & {
  q?: string | undefined
  status?: string | undefined
  idPrefix?: string | undefined
}

/** All accounts, by name; for system scope only. */
export async function listAccounts(
  db: Db,
  scope: Scope,
  { q, status, idPrefix, ...page }: Query,
): Promise<Page<Account>> {
  const found = db
    .selectFrom('users')
    .$if(scope.kind !== 'system', (it) => it.where('users.id', '=', ''))
    .$if(status !== undefined, (it) => it.where('users.status', '=', status!))
    .$if(idPrefix !== undefined, (it) => it.where(idStartsWith('users.id', idPrefix!)))
    .$if(!!q, (it) => it.where((eb) => eb.or([contains('users.name', q!), contains('users.email', q!)])))
  const byName = (it: typeof found) =>
    it
      .select(columns.map((column) => `users.${column}` as const))
      .orderBy('users.name')
      .orderBy('users.id')
  return readPage(found, page, byName, (row) => accountRows.read(row))
}

/**
 * The members of a tenant, by their displayed name: for an account that other tenants share, the name typed
 * here. Searching or sorting by the other name would reveal it.
 */
export async function listMembers(
  db: Db,
  scope: Scope,
  tenant: Tenant,
  { q, status, idPrefix, ...page }: Query,
): Promise<Page<Account>> {
  type Members = ExpressionBuilder<Tables & { m: Tables['organization_memberships'] }, 'users' | 'm'>
  const isWhole = (eb: Members) => whollyInScope(eb as never, scope)
  const shown = (eb: Members, column: 'name' | 'email') => {
    const address = eb.fn.coalesce('m.invited_email', 'users.email')
    const typed = column === 'name' ? eb.fn.coalesce('m.invited_name', address) : address
    return eb
      .case()
      .when(isWhole(eb))
      .then(eb.ref(`users.${column}`))
      .else(typed)
      .end()
  }
  // Same as `membershipStatus`.
  const standing = (eb: Members) => {
    const disabled = eb.or([
      eb('m.disabled_at', 'is not', null),
      eb.and([
        eb('users.status', '=', 'disabled'),
        eb.or([eb('m.accepted_at', 'is not', null), isWhole(eb)]),
      ]),
    ])
    const invited = eb.or([eb('m.accepted_at', 'is', null), eb('users.status', '=', 'invited')])
    return eb.case().when(disabled).then('disabled').when(invited).then('invited').else('active').end()
  }
  const members = membersOf(db, scope, tenant) as ReturnType<typeof membersOfOrg>
  const found = members
    .innerJoin('users', 'users.id', 'm.user_id')
    .$if(status !== undefined, (it) => it.where((eb) => eb(standing(eb), '=', status!)))
    .$if(idPrefix !== undefined, (it) => it.where(idStartsWith('m.user_id', idPrefix!)))
    .$if(!!q, (it) =>
      it.where((eb) => eb.or([contains(shown(eb, 'name'), q!), contains(shown(eb, 'email'), q!)])),
    )
  const byName = (it: typeof found) =>
    it
      .select(columns.map((column) => `users.${column}` as const))
      .orderBy((eb) => shown(eb, 'name'))
      .orderBy('users.id')
  return readPage(found, page, byName, (row) => accountRows.read(row))
}

const membersOfOrg = (db: Db) => db.selectFrom('organization_memberships as m')

export async function findAccount(db: Db, id: string): Promise<Account | undefined> {
  const row = await db.selectFrom('users').select(columns).where('id', '=', id).executeTakeFirst()
  return row && accountRows.read(row)
}

export async function findAccounts(db: Db, ids: readonly string[]): Promise<Account[]> {
  if (ids.length === 0) return []
  const rows = await db.selectFrom('users').select(columns).where('id', 'in', ids).execute()
  return rows.map((row) => accountRows.read(row))
}

export async function changeAccount(
  db: Db,
  id: string,
  change: { name?: string | undefined; status?: string | undefined; avatarUrl?: string | null | undefined },
  now: Instant,
): Promise<void> {
  const { name, status, avatarUrl } = change
  const set = {
    ...(name !== undefined && { name }),
    ...(status !== undefined && { status }),
    ...(avatarUrl !== undefined && { avatar_url: avatarUrl }),
  }
  await db
    .updateTable('users')
    .set({ ...set, updated_at: now })
    .where('id', '=', id)
    .execute()
  if (status !== undefined) await endSessions(db, id, now)
}

/** Removes every second factor and ends every session. */
export async function clearFactors(db: Db, id: string, now: Instant): Promise<void> {
  await db
    .updateTable('users')
    .set((eb) => ({
      mfa_method: null,
      totp_secret: null,
      phone_number: null,
      phone_verified: 0,
      mfa_epoch: eb('mfa_epoch', '+', 1),
      updated_at: now,
    }))
    .where('id', '=', id)
    .execute()
  for (const table of ['recovery_codes', 'mfa_setups'] as const) {
    await db.deleteFrom(table).where('user_id', '=', id).execute()
  }
  await revokeSessions(db, id, now)
}

/**
 * Removes what others set up before the holder of the address proved it: a factor, a phone number that would
 * become one, a pending setup, and the sessions that did so.
 */
export async function clearUnprovedFactors(
  db: Db,
  user: { id: string; emailProvedAt: Instant | null },
  now: Instant,
): Promise<void> {
  if (user.emailProvedAt === null) await clearFactors(db, user.id, now)
}

/** Ends the sessions of a person in one tenant only. */
export async function endUserSessions(db: Db, userId: string, tenant: Tenant, now: Instant): Promise<void> {
  const context = contextKey(tenant)
  await revokingSessions(db, now).where('user_id', '=', userId).where('context', '=', context).execute()
  for (const table of ['login_challenges', 'device_authorizations'] as const) {
    await db.deleteFrom(table).where('user_id', '=', userId).where('context', '=', context).execute()
  }
}

/** Locks all system administrators, so that the last one stays even when two are removed at once. */
export async function countOtherSystemAdmins(db: Db, id: string): Promise<number> {
  const admins = await forUpdate(
    db.selectFrom('users').select(['id', 'status']).where('is_system', '=', 1).orderBy('id'),
  ).execute()
  return admins.filter((one) => one.id !== id && one.status === 'active').length
}

const roleRows = rowsOf<RoleRow>()({ flags: ['is_system', 'force_mfa'] })

/** Roles that members of a tenant can have, or the built-in ones. */
export async function listRoleChoices(db: Db, tenant: Tenant | undefined) {
  const rows = await db
    .selectFrom('roles')
    .selectAll()
    .where((eb) => {
      if (!tenant) return eb('is_system', '=', 1)
      const own =
        tenant.kind === 'partner'
          ? eb.and([eb('partner_id', '=', tenant.partnerId), eb('org_id', 'is', null)])
          : eb('org_id', '=', tenant.orgId)
      return eb.and([eb('scope', '=', tenant.kind), eb.or([eb('is_system', '=', 1), own])])
    })
    .orderBy('name')
    .orderBy('id')
    .execute()
  return rows.map((row) => roleRows.read(row))
}
