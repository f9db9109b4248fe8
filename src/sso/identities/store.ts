import { Problem } from '../../core/errors.ts'
import type { Page, PageQuery } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { revokingSessions } from '../../identity/store.ts'
import type { Db } from '../../storage/open.ts'
import { readPage } from '../../storage/query/pages.ts'
import { inScope } from '../../storage/query/scope.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { SsoIdentityRow } from '../../storage/schema/tables.ts'
import type { SsoIdentity } from './contract.ts'

type Which = { id: string; providerId: string }

const rows = rowsOf<Pick<SsoIdentityRow, (typeof columns)[number]>>()()
const columns = ['id', 'user_id', 'email', 'external_id', 'last_login_at', 'created_at'] as const

const identitiesIn = (db: Db, scope: Scope, providerId: string) =>
  db.selectFrom('sso_identities').where('provider_id', 'in', (eb) =>
    eb
      .selectFrom('sso_providers')
      .select('sso_providers.id')
      .where('sso_providers.id', '=', providerId)
      .where(inScope(ofOne(scope), 'sso_providers.org_id')),
  )

/** Latest sign-in first. */
export async function listIdentities(
  db: Db,
  scope: Scope,
  providerId: string,
  page: PageQuery,
): Promise<Page<SsoIdentity>> {
  const found = identitiesIn(db, scope, providerId)
  const latestFirst = (q: typeof found) => q.select(columns).orderBy('last_login_at', 'desc').orderBy('id')
  return readPage(found, page, latestFirst, (row) => rows.read(row))
}

/** @throws not_found, also for one of another provider or outside the scope */
export async function getIdentity(db: Db, scope: Scope, { id, providerId }: Which): Promise<SsoIdentity> {
  const row = await identitiesIn(db, scope, providerId)
    .select(columns)
    .where('id', '=', id)
    .executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Identity not found')
  return rows.read(row)
}

/** Deletes the link, and with it the sessions that began with it and the codes and approvals not yet exchanged for one. */
export async function unlinkIdentity(
  db: Db,
  scope: Scope,
  { id, providerId }: Which,
  now: Instant,
): Promise<void> {
  const one = identitiesIn(db, scope, providerId).where('sso_identities.id', '=', id)
  const person = one.select('sso_identities.user_id')
  await revokingSessions(db, now)
    .where('sso_provider_id', '=', providerId)
    .where('user_id', 'in', person)
    .execute()
  await db
    .deleteFrom('sso_exchanges')
    .where('provider_id', '=', providerId)
    .where('user_id', 'in', person)
    .execute()
  await db
    .deleteFrom('device_authorizations')
    .where('sso_provider_id', '=', providerId)
    .where('user_id', 'in', person)
    .execute()
  await db.deleteFrom('sso_identities').where('id', 'in', one.select('sso_identities.id')).execute()
}
