import { Problem } from '../core/errors.ts'
import { offsetOf, type Page, type PageQuery, toPage, totalFrom } from '../core/page.ts'
import type { Scope } from '../core/scope.ts'
import { countOf } from '../storage/counts.ts'
import { forUpdate, inScope, inSites, isUniqueViolation, preparedInScope } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'
import { rowsOf } from '../storage/rows.ts'
import type { OrganizationRow, PartnerRow, SiteRow } from '../storage/tables.ts'
import type { Organization, Partner, Site } from './contract.ts'

const partnerRows = rowsOf<PartnerRow>()({ json: ['settings', 'sso_config'] })
const orgRows = rowsOf<OrganizationRow>()({ json: ['settings', 'sso_config', 'billing_contact'] })
const siteRows = rowsOf<SiteRow>()({ json: ['address', 'contact', 'settings'] })

const readPartner = (row: PartnerRow) => partnerRows.read(row) as Partner
const readOrg = (row: OrganizationRow) => orgRows.read(row) as Organization
const readSite = (row: SiteRow) => siteRows.read(row) as Site

// Partners are seen in system scope only, so nothing narrows them.

export async function listPartners(db: Db, page: PageQuery): Promise<Page<Partner>> {
  const live = db.selectFrom('partners').where('deleted_at', 'is', null)
  const rows = await live
    .selectAll()
    .orderBy('name')
    .orderBy('id')
    .limit(page.limit)
    .offset(offsetOf(page))
    .execute()
  const total = totalFrom(rows.length, page) ?? (await countOf(live))
  return toPage(rows.map(readPartner), total, page)
}

export async function findPartner(db: Db, id: string): Promise<Partner | undefined> {
  const found = db.selectFrom('partners').selectAll().where('id', '=', id).where('deleted_at', 'is', null)
  const row = await found.executeTakeFirst()
  return row && readPartner(row)
}

/** @throws not_found */
export async function getPartner(db: Db, id: string): Promise<Partner> {
  const partner = await findPartner(db, id)
  if (!partner) throw new Problem('not_found', 'Partner not found')
  return partner
}

/** The same, and holds on to it until the transaction ends. @throws not_found */
export async function lockPartner(db: Db, id: string): Promise<Partner> {
  const found = db.selectFrom('partners').selectAll().where('id', '=', id).where('deleted_at', 'is', null)
  const row = await forUpdate(found).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Partner not found')
  return readPartner(row)
}

/** @throws slug_taken */
export async function insertPartner(db: Db, partner: Partner): Promise<void> {
  await db.insertInto('partners').values(partnerRows.write(partner)).execute().catch(slugTaken)
}

// Organizations

const liveOrgs = (db: Db, scope: Scope) =>
  db.selectFrom('organizations').where('deleted_at', 'is', null).where(inScope(scope, 'organizations.id'))

const orgsByName = preparedInScope((db, scope) =>
  liveOrgs(db, scope).selectAll().orderBy('name').orderBy('id'),
)
const orgInSight = preparedInScope((db, scope, p: { id: string }) =>
  liveOrgs(db, scope).select('id').where('id', '=', p.id),
)

export async function listOrgs(db: Db, scope: Scope): Promise<Organization[]> {
  return (await orgsByName(db, scope, {})).map(readOrg)
}

export async function pageOrgs(
  db: Db,
  scope: Scope,
  { partnerId, ...page }: PageQuery & { partnerId?: string | undefined },
): Promise<Page<Organization>> {
  const found = liveOrgs(db, scope).$if(partnerId !== undefined, (q) =>
    q.where('partner_id', '=', partnerId!),
  )
  const rows = await found
    .selectAll()
    .orderBy('name')
    .orderBy('id')
    .limit(page.limit)
    .offset(offsetOf(page))
    .execute()
  const total = totalFrom(rows.length, page) ?? (await countOf(found))
  return toPage(rows.map(readOrg), total, page)
}

export async function findOrg(db: Db, scope: Scope, id: string): Promise<Organization | undefined> {
  const row = await liveOrgs(db, scope).selectAll().where('id', '=', id).executeTakeFirst()
  return row && readOrg(row)
}

/** @throws not_found, also for an organization outside the scope */
export async function getOrg(db: Db, scope: Scope, id: string): Promise<Organization> {
  const org = await findOrg(db, scope, id)
  if (!org) throw new Problem('not_found', 'Organization not found')
  return org
}

/**
 * Refuses an organization named in a request that the caller cannot reach, whether or not it exists.
 * @throws org_access_denied, or not_found in system scope
 */
export async function checkOrg(db: Db, scope: Scope, id: string): Promise<void> {
  if ((await orgInSight(db, scope, { id })).length > 0) return
  throw scope.kind === 'system'
    ? new Problem('not_found', 'Organization not found')
    : new Problem('org_access_denied')
}

/** Live organizations of a partner, for its cap. */
export async function countOrgs(db: Db, partnerId: string): Promise<number> {
  const live = db
    .selectFrom('organizations')
    .where('partner_id', '=', partnerId)
    .where('deleted_at', 'is', null)
  return countOf(live)
}

/** @throws slug_taken */
export async function insertOrg(db: Db, org: Organization): Promise<void> {
  await db.insertInto('organizations').values(orgRows.write(org)).execute().catch(slugTaken)
}

/** Adds a new organization to the memberships of a partner user who only sees selected ones. */
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

// Sites

const sitesIn = (db: Db, scope: Scope) =>
  db.selectFrom('sites').where(inScope(scope, 'sites.org_id')).where(inSites(scope, 'sites.id'))

type Rows = { limit: number; offset: number }

const sitesByName = preparedInScope((db, scope, p: Rows) =>
  sitesIn(db, scope).selectAll().orderBy('name').orderBy('id').limit(p.limit).offset(p.offset),
)
const sitesOfOrgByName = preparedInScope((db, scope, p: Rows & { orgId: string }) =>
  sitesIn(db, scope)
    .selectAll()
    .where('org_id', '=', p.orgId)
    .orderBy('name')
    .orderBy('id')
    .limit(p.limit)
    .offset(p.offset),
)
const siteById = preparedInScope((db, scope, p: { id: string }) =>
  sitesIn(db, scope).selectAll().where('id', '=', p.id),
)

export async function listSites(
  db: Db,
  scope: Scope,
  { orgId, ...page }: PageQuery & { orgId?: string | undefined },
): Promise<Page<Site>> {
  const part = { limit: page.limit, offset: offsetOf(page) }
  const rows = await (orgId === undefined
    ? sitesByName(db, scope, part)
    : sitesOfOrgByName(db, scope, { ...part, orgId }))
  const found = () => sitesIn(db, scope).$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
  const total = totalFrom(rows.length, page) ?? (await countOf(found()))
  return toPage(rows.map(readSite), total, page)
}

export async function findSite(db: Db, scope: Scope, id: string): Promise<Site | undefined> {
  const [row] = await siteById(db, scope, { id })
  return row && readSite(row)
}

/**
 * A site outside the scope is refused like one that does not exist.
 * @throws site_access_denied, or not_found in system scope
 */
export async function getSite(db: Db, scope: Scope, id: string): Promise<Site> {
  const site = await findSite(db, scope, id)
  if (site) return site
  throw scope.kind === 'system'
    ? new Problem('not_found', 'Site not found')
    : new Problem('site_access_denied')
}

export async function insertSite(db: Db, site: Site): Promise<void> {
  await db.insertInto('sites').values(siteRows.write(site)).execute()
}

function slugTaken(error: unknown): never {
  if (isUniqueViolation(error)) throw new Problem('slug_taken')
  throw error
}
