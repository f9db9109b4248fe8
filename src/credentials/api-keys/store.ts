import { expressionBuilder } from 'kysely'
import { Problem } from '../../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { readById, readPage } from '../../storage/query/pages.ts'
import { prepared, rowOf } from '../../storage/query/prepared.ts'
import { inScope } from '../../storage/query/scope.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { ApiKeyRow, Tables } from '../../storage/schema/tables.ts'
import type { ApiKey } from './contract.ts'

const keyRows = rowsOf<ApiKeyRow>()({ json: ['scopes'] })

/** All columns except the hashes. */
const columns = [
  'id',
  'org_id',
  'name',
  'key_prefix',
  'scopes',
  'expires_at',
  'rate_limit',
  'status',
  'created_by',
  'created_at',
  'last_used_at',
  'usage_count',
] as const

type PublicRow = Pick<ApiKeyRow, (typeof columns)[number]>

const read = (row: PublicRow): ApiKey => keyRows.read(row) as unknown as ApiKey

const eb = expressionBuilder<Tables, 'api_keys'>()

/** Keys that can be used, as `statusAt` says of one. */
export const isUsableApiKey = (now: Instant) =>
  eb.and([
    eb('api_keys.status', '=', 'active'),
    eb.or([eb('api_keys.expires_at', 'is', null), eb('api_keys.expires_at', '>', now)]),
  ])

const keysIn = (db: Db, scope: Scope) => db.selectFrom('api_keys').where(inScope(scope, 'api_keys.org_id'))

const usableIn = (db: Db, scope: Scope, now: Instant) => keysIn(db, scope).where(isUsableApiKey(now))

type Span = { after: Instant; until: Instant }

/** Keys in use that expire within a time. */
const expiringIn = (db: Db, scope: Scope, { after, until }: Span) =>
  usableIn(db, scope, after).where('expires_at', '<=', until)

/** Newest first. */
export async function listApiKeys(
  db: Db,
  scope: Scope,
  query: PageQuery & {
    orgId?: string | undefined
    status?: ApiKey['status'] | undefined
    expiresBefore?: Instant | undefined
  },
  now: Instant,
): Promise<Page<ApiKey>> {
  const until = query.expiresBefore
  const found = (until === undefined ? keysIn(db, scope) : expiringIn(db, scope, { after: now, until }))
    .$if(query.orgId !== undefined, (q) => q.where('org_id', '=', query.orgId!))
    .$if(query.status !== undefined, (q) => q.where('status', '=', query.status!))
  const newestFirst = (q: typeof found) =>
    q.select(columns).orderBy('created_at', 'desc').orderBy('id', 'desc')
  return readPage(found, query, newestFirst, read)
}

export const countUsableApiKeys = (db: Db, scope: Scope, now: Instant): Promise<number> =>
  countRowsOf(usableIn(db, scope, now))

export async function listUsableApiKeysById(
  db: Db,
  scope: Scope,
  page: IdPage,
  now: Instant,
): Promise<ApiKey[]> {
  const rows = await readById(usableIn(db, scope, now), 'api_keys.id', page, (q) => q.select(columns))
  return rows.map(read)
}

/** Keys in use that a person has made, with the partners of their organizations. */
export function listUsableApiKeysBy(
  db: Db,
  scope: Scope,
  createdBy: string,
  now: Instant,
): Promise<{ id: string; orgId: string; partnerId: string; scopes: string }[]> {
  return usableIn(db, scope, now)
    .where('created_by', '=', createdBy)
    .innerJoin('organizations as o', 'o.id', 'api_keys.org_id')
    .select(['api_keys.id', 'api_keys.org_id as orgId', 'o.partner_id as partnerId', 'api_keys.scopes'])
    .execute()
}

/** Who has made keys in use, of the people who have one of these roles. */
export async function listApiKeyCreators(
  db: Db,
  scope: Scope,
  roleIds: readonly string[],
  now: Instant,
): Promise<string[]> {
  const holders = db
    .selectFrom('organization_memberships')
    .select('user_id')
    .where('role_id', 'in', roleIds)
    .union(db.selectFrom('partner_memberships').select('user_id').where('role_id', 'in', roleIds))
  const rows = await usableIn(db, scope, now)
    .select('created_by')
    .distinct()
    .where('created_by', 'in', holders)
    .execute()
  return rows.map((row) => row.created_by)
}

/** How many keys in use expire within a time. */
export const countExpiringApiKeys = (db: Db, scope: Scope, within: Span): Promise<number> =>
  countRowsOf(expiringIn(db, scope, within))

/** @throws not_found, also for a key outside the scope */
export async function getApiKey(db: Db, scope: Scope, id: string): Promise<ApiKey> {
  const row = await keysIn(db, ofOne(scope)).select(columns).where('id', '=', id).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'API key not found')
  return read(row)
}

const insertion = prepared((db, p: { [K in keyof ApiKeyRow]: ApiKeyRow[K] }) =>
  db
    .insertInto('api_keys')
    .values(rowOf<ApiKeyRow>(p, [...columns, 'key_hash', 'previous_hash', 'previous_until'])),
)

export async function insertApiKey(db: Db, key: ApiKey, hash: string): Promise<void> {
  const hashes = { key_hash: hash, previous_hash: null, previous_until: null }
  await insertion(db, { ...(keyRows.write(key as never) as PublicRow), ...hashes })
}

export async function changeApiKey(db: Db, scope: Scope, key: ApiKey): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ name: key.name, scopes: JSON.stringify(key.scopes), rate_limit: key.rateLimit })
    .where('id', '=', key.id)
    .where(inScope(ofOne(scope), 'api_keys.org_id'))
    .execute()
}

/** Replaces the key material; the previous key works until `previousUntil`, or not at all. */
export async function replaceApiKey(
  db: Db,
  scope: Scope,
  key: ApiKey,
  { hash, previousUntil }: { hash: string; previousUntil: Instant | null },
): Promise<void> {
  await db
    .updateTable('api_keys')
    .set((eb) => ({
      key_hash: hash,
      key_prefix: key.keyPrefix,
      expires_at: key.expiresAt,
      previous_hash: previousUntil === null ? null : eb.ref('key_hash'),
      previous_until: previousUntil,
      usage_count: 0,
      last_used_at: null,
    }))
    .where('id', '=', key.id)
    .where(inScope(ofOne(scope), 'api_keys.org_id'))
    .execute()
}

/** Revoking a key also ends its predecessor from a rotation. */
const revoked = { status: 'revoked', previous_hash: null, previous_until: null }

export async function revokeApiKey(db: Db, scope: Scope, id: string): Promise<void> {
  await db
    .updateTable('api_keys')
    .set(revoked)
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'api_keys.org_id'))
    .execute()
}

/**
 * Revokes every key in a scope, when its tenant is suspended, churned or deleted. They are not restored with
 * the tenant.
 */
export async function revokeApiKeys(db: Db, scope: Scope): Promise<void> {
  await db
    .updateTable('api_keys')
    .set(revoked)
    .where('status', '!=', 'revoked')
    .where(inScope(scope, 'api_keys.org_id'))
    .execute()
}
