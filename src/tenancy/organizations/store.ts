import { Problem } from '../../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../../core/page.ts'
import { ofOne, organizationScope, type Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { forNoKeyUpdate, forShare } from '../../storage/query/locks.ts'
import { readById, readPage } from '../../storage/query/pages.ts'
import { preparedInScope } from '../../storage/query/prepared-in-scope.ts'
import { inScope, inScopeHistory } from '../../storage/query/scope.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { OrganizationRow } from '../../storage/schema/tables.ts'
import { throwSlugTaken } from '../partners/store.ts'
import type { Organization } from './contract.ts'

const orgRows = rowsOf<OrganizationRow>()({ json: ['settings', 'sso_config', 'billing_contact'] })

const readOrg = (row: OrganizationRow) => orgRows.read(row) as Organization

const liveOrgs = (db: Db, scope: Scope) =>
  db.selectFrom('organizations').where('deleted_at', 'is', null).where(inScope(scope, 'organizations.id'))

const orgsByName = preparedInScope((db, scope) =>
  liveOrgs(db, scope).selectAll().orderBy('name').orderBy('id'),
)
const orgInSight = preparedInScope((db, scope, p: { id: string }) =>
  liveOrgs(db, ofOne(scope)).select('id').where('id', '=', p.id),
)

export async function listOrgs(db: Db, scope: Scope): Promise<Organization[]> {
  return (await orgsByName(db, scope, {})).map(readOrg)
}

export async function listOrgsById(db: Db, scope: Scope, page: IdPage): Promise<Organization[]> {
  const rows = await readById(liveOrgs(db, scope), 'organizations.id', page, (q) => q.selectAll())
  return rows.map(readOrg)
}

export async function pageOrgs(
  db: Db,
  scope: Scope,
  { partnerId, ...page }: PageQuery & { partnerId?: string | undefined },
): Promise<Page<Organization>> {
  const found = liveOrgs(db, scope).$if(partnerId !== undefined, (q) =>
    q.where('partner_id', '=', partnerId!),
  )
  return readPage(found, page, (q) => q.selectAll().orderBy('name').orderBy('id'), readOrg)
}

export async function findOrg(db: Db, scope: Scope, id: string): Promise<Organization | undefined> {
  const row = await liveOrgs(db, ofOne(scope)).selectAll().where('id', '=', id).executeTakeFirst()
  return row && readOrg(row)
}

/** Id of the organization with this slug that was deleted last. */
export async function findDeletedOrg(db: Db, scope: Scope, slug: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('organizations')
    .select('id')
    .where('deleted_at', 'is not', null)
    .where(inScopeHistory(scope, 'organizations.id'))
    .where('slug', '=', slug)
    .orderBy('deleted_at', 'desc')
    .limit(1)
    .executeTakeFirst()
  return row?.id
}

/** @throws not_found, also for an organization outside the scope */
export async function getOrg(db: Db, scope: Scope, id: string): Promise<Organization> {
  const org = await findOrg(db, scope, id)
  if (!org) throw new Problem('not_found', 'Organization not found')
  return org
}

/**
 * Refuses an organization named in a request that is outside the caller's scope, whether or not it exists.
 * @throws org_access_denied, or not_found in system scope
 */
export async function checkOrg(db: Db, scope: Scope, id: string): Promise<void> {
  if ((await orgInSight(db, scope, { id })).length === 0) throw outOfReach(scope)
}

/**
 * The scope of a request that may name one organization. A member who is restricted to sites or groups of theirs remains so.
 * @throws like `checkOrg`
 */
export async function scopeWithin(db: Db, scope: Scope, orgId: string | undefined): Promise<Scope> {
  if (orgId === undefined) return scope
  await checkOrg(db, scope, orgId)
  return scope.kind === 'organization' ? scope : organizationScope(orgId)
}

/** The same as `checkOrg` for reading history: the organization may have been deleted. */
export async function checkOrgInHistory(db: Db, scope: Scope, id: string): Promise<void> {
  const known = db.selectFrom('organizations').select('id').where(inScopeHistory(scope, 'organizations.id'))
  if (!(await known.where('id', '=', id).executeTakeFirst())) throw outOfReach(scope)
}

const outOfReach = (scope: Scope): Problem =>
  scope.kind === 'system'
    ? new Problem('not_found', 'Organization not found')
    : new Problem('org_access_denied')

/**
 * The same, and prevents its deletion until the transaction ends.
 * @throws org_access_denied, or not_found in system scope
 */
export async function shareLockOrg(db: Db, scope: Scope, id: string): Promise<void> {
  await checkOrg(db, scope, id)
  // If it was deleted meanwhile, it is refused like one that never existed.
  const held = await forShare(liveOrgs(db, ofOne(scope)).select('id').where('id', '=', id)).executeTakeFirst()
  if (!held) await checkOrg(db, scope, id)
}

/** Locks an organization to change it. @throws not_found, also for one outside the scope */
export async function lockOrg(db: Db, scope: Scope, id: string): Promise<Organization> {
  const row = await forNoKeyUpdate(
    liveOrgs(db, ofOne(scope)).selectAll().where('id', '=', id),
  ).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Organization not found')
  return readOrg(row)
}

/** Ids in the order of registration. */
export async function listOrgIds(db: Db, scope: Scope): Promise<string[]> {
  const rows = await liveOrgs(db, scope).select('id').orderBy('created_at').orderBy('id').execute()
  return rows.map(({ id }) => id)
}

/** Live organizations of a partner. */
export async function countOrgs(db: Db, partnerId: string): Promise<number> {
  const live = db
    .selectFrom('organizations')
    .where('partner_id', '=', partnerId)
    .where('deleted_at', 'is', null)
  return countRowsOf(live)
}

/** @throws slug_taken */
export async function insertOrg(db: Db, org: Organization): Promise<void> {
  await db.insertInto('organizations').values(orgRows.write(org)).execute().catch(throwSlugTaken)
}

/** @throws slug_taken */
export async function changeOrg(db: Db, scope: Scope, org: Organization): Promise<void> {
  const { id, ...rest } = orgRows.write(org)
  const changed = db.updateTable('organizations').set(rest).where('id', '=', id)
  await changed.where(inScope(scope, 'organizations.id')).execute().catch(throwSlugTaken)
}

/** Another slug for a live organization that has `from`, and nothing else: no audit entry, and no time. */
export async function exchangeSlug(
  db: Db,
  scope: Scope,
  id: string,
  { from, to }: { from: string; to: string },
): Promise<void> {
  await db
    .updateTable('organizations')
    .set({ slug: to })
    .where('id', '=', id)
    .where('slug', '=', from)
    .where('deleted_at', 'is', null)
    .where(inScope(scope, 'organizations.id'))
    .execute()
}

/** Soft-deletes every organization in a scope; returns how many. */
export async function removeOrgs(db: Db, scope: Scope, now: Instant): Promise<number> {
  const { numUpdatedRows } = await db
    .updateTable('organizations')
    .set({ status: 'churned', updated_at: now, deleted_at: now })
    .where('deleted_at', 'is', null)
    .where(inScope(scope, 'organizations.id'))
    .executeTakeFirstOrThrow()
  return Number(numUpdatedRows)
}

/** Adds a new organization to the membership of a partner user limited to selected ones. */
export async function grantOrg(db: Db, partnerId: string, userId: string, orgId: string): Promise<void> {
  const selected = db
    .selectFrom('partner_memberships')
    .select((eb) => ['id', eb.val(orgId).as('org_id')])
    .where('partner_id', '=', partnerId)
    .where('user_id', '=', userId)
    .where('org_access', '=', 'selected')
  await db
    .insertInto('partner_membership_orgs')
    .columns(['membership_id', 'org_id'])
    .expression(selected)
    .execute()
}

/** Members of its partner who see selected organizations, and this one among them. */
export const countSelections = (db: Db, scope: Scope, orgId: string): Promise<number> =>
  countRowsOf(
    db
      .selectFrom('partner_membership_orgs')
      .innerJoin('partner_memberships as m', 'm.id', 'partner_membership_orgs.membership_id')
      .where('m.org_access', '=', 'selected')
      .where('partner_membership_orgs.org_id', '=', orgId)
      .where(inScope(ofOne(scope), 'partner_membership_orgs.org_id')),
  )
