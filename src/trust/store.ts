import { Problem } from '../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../core/page.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { forKeyShare, forUpdate } from '../storage/query/locks.ts'
import { readById, readPage } from '../storage/query/pages.ts'
import { inScope } from '../storage/query/scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { TrustPolicyRow } from '../storage/schema/tables.ts'
import { tenantIsUsable } from '../tenancy/access.ts'
import type { TrustPolicy } from './contract.ts'
import { lookupKeyOf, type TrustPolicyRecord, toTrustPolicy } from './rules.ts'

const rows = rowsOf<Omit<TrustPolicyRow, 'lead' | 'permissions'>>()({ json: ['claims'] })

function toRecord({ lead: _, permissions, ...row }: TrustPolicyRow): TrustPolicyRecord {
  return { ...rows.read(row), permissions: JSON.parse(permissions) as string[] } as TrustPolicyRecord
}

function rowOf({ permissions, ...policy }: TrustPolicyRecord): TrustPolicyRow {
  const rest = { permissions: JSON.stringify(permissions), lead: lookupKeyOf(policy) }
  return { ...rows.write(policy), ...rest }
}

const policiesIn = (db: Db, scope: Scope) =>
  db.selectFrom('trust_policies').where(inScope(scope, 'trust_policies.org_id'))

export const countTrustPoliciesIn = (db: Db, scope: Scope): Promise<number> =>
  countRowsOf(policiesIn(db, scope))

/** Oldest first. */
export async function listTrustPolicies(
  db: Db,
  scope: Scope,
  { orgId, ...page }: PageQuery & { orgId?: string | undefined },
): Promise<Page<TrustPolicy>> {
  const found = policiesIn(db, scope).$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
  const oldestFirst = (q: typeof found) => q.selectAll().orderBy('created_at').orderBy('id')
  return readPage(found, page, oldestFirst, (row) => toTrustPolicy(toRecord(row)))
}

export async function listTrustPoliciesById(db: Db, scope: Scope, page: IdPage): Promise<TrustPolicy[]> {
  const rows = await readById(policiesIn(db, scope), 'trust_policies.id', page, (q) => q.selectAll())
  return rows.map((row) => toTrustPolicy(toRecord(row)))
}

/** @throws not_found, also for a policy outside the scope */
export async function getTrustPolicy(db: Db, scope: Scope, id: string): Promise<TrustPolicyRecord> {
  const row = await policiesIn(db, ofOne(scope)).selectAll().where('id', '=', id).executeTakeFirst()
  if (!row) throw notFound()
  return toRecord(row)
}

/** The same, locked until the transaction ends. @throws not_found */
export async function lockTrustPolicy(db: Db, scope: Scope, id: string): Promise<TrustPolicyRecord> {
  const row = await forUpdate(
    policiesIn(db, ofOne(scope)).selectAll().where('id', '=', id),
  ).executeTakeFirst()
  if (!row) throw notFound()
  return toRecord(row)
}

/** Until the transaction ends nobody changes or deletes it; jobs go on to sign in by it. */
export async function holdTrustPolicy(db: Db, scope: Scope, id: string): Promise<void> {
  await forKeyShare(policiesIn(db, ofOne(scope)).select('id').where('id', '=', id)).execute()
}

const notFound = () => new Problem('not_found', 'Trust policy not found')

export async function insertTrustPolicy(db: Db, policy: TrustPolicyRecord): Promise<void> {
  await db.insertInto('trust_policies').values(rowOf(policy)).execute()
}

export async function changeTrustPolicy(db: Db, scope: Scope, policy: TrustPolicyRecord): Promise<void> {
  const { id, org_id: _, created_at: __, created_by: ___, last_used_at: ____, ...row } = rowOf(policy)
  await db
    .updateTable('trust_policies')
    .set(row)
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'org_id'))
    .execute()
}

export async function removeTrustPolicy(db: Db, scope: Scope, id: string): Promise<void> {
  await db
    .deleteFrom('trust_policies')
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'org_id'))
    .execute()
}

/** Invalidates the tokens issued under the policies in a scope; workloads can sign in again. */
export async function revokeWorkloads(db: Db, scope: Scope): Promise<void> {
  await db
    .updateTable('trust_policies')
    .set((eb) => ({ version: eb('version', '+', 1) }))
    .where(inScope(scope, 'org_id'))
    .execute()
}

/** Active policies of organizations that can be used. */
const inUse = (db: Db, scope: Scope) =>
  policiesIn(db, scope)
    .innerJoin('organizations as o', 'o.id', 'trust_policies.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .selectAll('trust_policies')
    .where('trust_policies.status', '=', 'active')
    .where(tenantIsUsable)

/** Active policies that one of a token's claims leads to (rules.ts, `lookupKeyOf`), oldest first. */
export async function listPoliciesByKey(
  db: Db,
  scope: Scope,
  issuer: string,
  leads: readonly string[],
): Promise<TrustPolicyRecord[]> {
  if (leads.length === 0) return []
  const found = await inUse(db, scope)
    .where('trust_policies.issuer', '=', issuer)
    .where('trust_policies.lead', 'in', leads)
    .orderBy('trust_policies.created_at')
    .orderBy('trust_policies.id')
    .execute()
  return found.map(toRecord)
}

/** The oldest policy of an issuer, or the one with this id, in whatever state. */
export async function findPolicyOf(
  db: Db,
  scope: Scope,
  issuer: string,
  id: string | undefined,
): Promise<TrustPolicyRecord | undefined> {
  const row = await policiesIn(db, scope)
    .selectAll()
    .where('issuer', '=', issuer)
    .$if(id !== undefined, (q) => q.where('id', '=', id!))
    .orderBy('created_at')
    .orderBy('id')
    .executeTakeFirst()
  return row && toRecord(row)
}

/** Whether any active policy in the scope trusts an issuer. */
export async function isTrusted(db: Db, scope: Scope, issuer: string): Promise<boolean> {
  const found = policiesIn(db, scope)
    .select('id')
    .where('issuer', '=', issuer)
    .where('status', '=', 'active')
    .limit(1)
  return (await found.executeTakeFirst()) !== undefined
}

/** Finds a policy that is in use. */
export async function findPolicyInUse(
  db: Db,
  scope: Scope,
  id: string,
): Promise<TrustPolicyRecord | undefined> {
  const row = await inUse(db, ofOne(scope)).where('trust_policies.id', '=', id).executeTakeFirst()
  return row && toRecord(row)
}

/** Records that a workload signed in with the policy; false when the policy changed meanwhile. */
export async function recordUse(
  db: Db,
  scope: Scope,
  { id, version }: TrustPolicyRecord,
  now: Instant,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('trust_policies')
    .set({ last_used_at: now })
    .where('id', '=', id)
    .where('version', '=', version)
    .where(inScope(scope, 'org_id'))
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

// Issuer metadata and used tokens belong to no tenant: a token is checked before its tenant is known.

export type IssuerMetadata = { jwksUrl: string; discoveredAt: Instant }

export async function findIssuer(db: Db, issuer: string): Promise<IssuerMetadata | undefined> {
  const found = db
    .selectFrom('trust_issuers')
    .select(['jwks_url', 'discovered_at'])
    .where('issuer', '=', issuer)
  const row = await found.executeTakeFirst()
  return row && { jwksUrl: row.jwks_url, discoveredAt: row.discovered_at }
}

export async function saveIssuer(db: Db, issuer: string, published: IssuerMetadata): Promise<void> {
  const row = { jwks_url: published.jwksUrl, discovered_at: published.discoveredAt }
  await db
    .insertInto('trust_issuers')
    .values({ issuer, ...row })
    .onConflict((c) => c.column('issuer').doUpdateSet(row))
    .execute()
}

export async function isTokenUsed(db: Db, hash: string): Promise<boolean> {
  const found = db.selectFrom('trust_tokens').select('token_hash').where('token_hash', '=', hash)
  return (await found.executeTakeFirst()) !== undefined
}

/** Consumes a token; false when it was used before, by any process. */
export async function consumeToken(db: Db, use: { hash: string; until: Instant }): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('trust_tokens')
    .values({ token_hash: use.hash, expires_at: use.until })
    .onConflict((c) => c.doNothing())
    .executeTakeFirstOrThrow()
  return numInsertedOrUpdatedRows === 1n
}

/** Deletes used tokens that are no longer accepted anyway, and issuers that no policy trusts any more. */
export async function sweepTokens(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('trust_tokens').where('expires_at', '<', now).execute()
  const policies = db.selectFrom('trust_policies').select('trust_policies.issuer')
  await db.deleteFrom('trust_issuers').where('trust_issuers.issuer', 'not in', policies).execute()
}
