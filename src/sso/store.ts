import type { Cipher } from '../core/cipher.ts'
import { Problem } from '../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../core/page.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { membershipIsInForce } from '../identity/memberships.ts'
import { revokingSessions } from '../identity/store.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { readById, readPage } from '../storage/query/pages.ts'
import { inScope } from '../storage/query/scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { SsoProviderRow } from '../storage/schema/tables.ts'
import { tenantIsUsable } from '../tenancy/access.ts'
import type { Provider } from './contract.ts'
import { type ProviderRecord, type RedactedProvider, redactProvider } from './rules.ts'

const rows = rowsOf<SsoProviderRow>()({
  json: ['attribute_mapping', 'vouches'],
  flags: ['auto_provision', 'enforce_sso', 'force_authn', 'sign_requests'],
})

const secretAad = (id: string) => `sso_providers.client_secret.${id}` as const

function toProvider(cipher: Cipher, row: SsoProviderRow): ProviderRecord {
  const { enforceSso: enforceSSO, clientSecret: encrypted, ...rest } = rows.read(row)
  const clientSecret = encrypted === null ? null : (cipher.tryDecrypt(encrypted, secretAad(row.id)) ?? null)
  const unreadableSecret = clientSecret === null ? encrypted : null
  return { ...rest, enforceSSO, clientSecret, unreadableSecret } as unknown as ProviderRecord
}

function toRow(cipher: Cipher, provider: ProviderRecord): SsoProviderRow {
  const { enforceSSO: enforceSso, clientSecret: plain, unreadableSecret, vouches: list, ...rest } = provider
  const vouches = list as unknown as Record<string, unknown>
  const clientSecret = plain === null ? unreadableSecret : cipher.encrypt(plain, secretAad(provider.id))
  return rows.write({ ...rest, enforceSso, clientSecret, vouches }) as SsoProviderRow
}

const providersIn = (db: Db, scope: Scope) =>
  db.selectFrom('sso_providers').where(inScope(scope, 'sso_providers.org_id'))

export const countProvidersIn = (db: Db, scope: Scope): Promise<number> => countRowsOf(providersIn(db, scope))

/** Oldest first. */
export async function listProviders(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  { orgId, ...page }: PageQuery & { orgId?: string | undefined },
): Promise<Page<RedactedProvider>> {
  const found = providersIn(db, scope).$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
  const oldestFirst = (q: typeof found) => q.selectAll().orderBy('created_at').orderBy('id')
  return readPage(found, page, oldestFirst, (row) => redactProvider(toProvider(cipher, row)))
}

/** With their secrets, by id: those after one of them. */
export async function listProviderRecords(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  page: IdPage,
): Promise<ProviderRecord[]> {
  const rows = await readById(providersIn(db, scope), 'sso_providers.id', page, (q) => q.selectAll())
  return rows.map((row) => toProvider(cipher, row))
}

/** @throws not_found, also for a provider outside the scope */
export async function getProvider(db: Db, cipher: Cipher, scope: Scope, id: string): Promise<ProviderRecord> {
  const row = await providersIn(db, ofOne(scope)).selectAll().where('id', '=', id).executeTakeFirst()
  if (!row) throw notFound()
  return toProvider(cipher, row)
}

/** The same, locked until the transaction ends. @throws not_found */
export async function lockProvider(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  id: string,
): Promise<ProviderRecord> {
  const found = providersIn(db, ofOne(scope)).selectAll().where('id', '=', id)
  const row = await forUpdate(found).executeTakeFirst()
  if (!row) throw notFound()
  return toProvider(cipher, row)
}

const notFound = () => new Problem('not_found', 'Provider not found')

/** undefined for a deleted provider; a database error is still thrown. */
export const undefinedIfMissing = (found: Promise<ProviderRecord>): Promise<ProviderRecord | undefined> =>
  found.catch((error: unknown) => {
    if (error instanceof Problem && error.code === 'not_found') return undefined
    throw error
  })

type ActiveProvider = Pick<Provider, 'id' | 'name' | 'type' | 'enforceSSO'>

/** The provider for sign-ins: the oldest active one, of an organization that can be used. */
export async function findActiveProvider(db: Db, scope: Scope): Promise<ActiveProvider | undefined> {
  const row = await providersIn(db, scope)
    .innerJoin('organizations as o', 'o.id', 'sso_providers.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .select(['sso_providers.id', 'sso_providers.name', 'sso_providers.type', 'sso_providers.enforce_sso'])
    .where('sso_providers.status', '=', 'active')
    .where(tenantIsUsable)
    .orderBy('sso_providers.created_at')
    .orderBy('sso_providers.id')
    .executeTakeFirst()
  if (!row) return undefined
  const { id, name, type } = row
  return { id, name, type: type as Provider['type'], enforceSSO: row.enforce_sso === 1 }
}

export async function insertProvider(db: Db, cipher: Cipher, provider: ProviderRecord): Promise<void> {
  await db.insertInto('sso_providers').values(toRow(cipher, provider)).execute()
}

export async function changeProvider(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  provider: ProviderRecord,
): Promise<void> {
  const { id, org_id: _, created_at: __, created_by: ___, ...row } = toRow(cipher, provider)
  await db
    .updateTable('sso_providers')
    .set(row)
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'org_id'))
    .execute()
}

/** Ends the sessions that began at a provider, and deletes the codes and approvals not yet exchanged for one. */
export async function endProviderSessions(db: Db, scope: Scope, id: string, now: Instant): Promise<void> {
  const one = providersIn(db, ofOne(scope)).select('sso_providers.id').where('sso_providers.id', '=', id)
  await db.deleteFrom('sso_exchanges').where('provider_id', 'in', one).execute()
  await db.deleteFrom('device_authorizations').where('sso_provider_id', 'in', one).execute()
  await revokingSessions(db, now).where('sso_provider_id', 'in', one).execute()
}

/**
 * Ends the pending sign-ins at a provider and deletes the links to its subjects; returns how many links there
 * were.
 */
export async function deleteIdentities(db: Db, scope: Scope, id: string): Promise<number> {
  const one = providersIn(db, ofOne(scope)).select('sso_providers.id').where('sso_providers.id', '=', id)
  await db.deleteFrom('sso_sessions').where('provider_id', 'in', one).execute()
  const [gone] = await db.deleteFrom('sso_identities').where('provider_id', 'in', one).execute()
  return Number(gone?.numDeletedRows ?? 0)
}

export async function removeProvider(db: Db, scope: Scope, id: string): Promise<void> {
  await db
    .deleteFrom('sso_providers')
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'org_id'))
    .execute()
}

/** The roles of an organization's members, and how many have each. */
export async function countMembersByRole(
  db: Db,
  scope: Scope,
): Promise<{ roleId: string; members: number }[]> {
  const held = await db
    .selectFrom('organization_memberships as m')
    .innerJoin('users as u', 'u.id', 'm.user_id')
    .select((eb) => ['m.role_id', eb.fn.countAll().as('members')])
    .where(inScope(scope, 'm.org_id'))
    .where(membershipIsInForce)
    .where('u.status', '<>', 'disabled')
    .groupBy('m.role_id')
    .execute()
  return held.map((one) => ({ roleId: one.role_id, members: Number(one.members) }))
}

/** The roles of the members who signed in with a provider since then. */
export async function listSignedInRoles(db: Db, scope: Scope, id: string, since: Instant): Promise<string[]> {
  const held = await providersIn(db, scope)
    .innerJoin('sso_identities as i', 'i.provider_id', 'sso_providers.id')
    .innerJoin('users as u', 'u.id', 'i.user_id')
    .innerJoin('organization_memberships as m', (join) =>
      join.onRef('m.user_id', '=', 'i.user_id').onRef('m.org_id', '=', 'sso_providers.org_id'),
    )
    .select('m.role_id')
    .distinct()
    .where('sso_providers.id', '=', id)
    .where('i.last_login_at', '>', since)
    .where('u.status', '=', 'active')
    .where(membershipIsInForce)
    .execute()
  return held.map((one) => one.role_id)
}
