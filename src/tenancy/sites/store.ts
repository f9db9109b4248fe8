import { Problem } from '../../core/errors.ts'
import { type IdPage, offsetOf, type Page, type PageQuery, toPage, totalFrom } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import { isForeignKeyViolation } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import { countFiltersOn, countRowsOf } from '../../storage/query/counts.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { readById } from '../../storage/query/pages.ts'
import { preparedInScope } from '../../storage/query/prepared-in-scope.ts'
import { inScope, inSites } from '../../storage/query/scope.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { SiteRow } from '../../storage/schema/tables.ts'
import type { Site } from './contract.ts'
import type { SiteUse } from './rules.ts'

const siteRows = rowsOf<SiteRow>()({ json: ['address', 'contact', 'settings'] })

const readSite = (row: SiteRow) => siteRows.read(row) as Site

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
  sitesIn(db, ofOne(scope)).selectAll().where('id', '=', p.id),
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
  const total = totalFrom(rows.length, page) ?? (await countRowsOf(found()))
  return toPage(rows.map(readSite), total, page)
}

export async function listSitesById(db: Db, scope: Scope, page: IdPage): Promise<Site[]> {
  return (await readById(sitesIn(db, scope), 'sites.id', page, (q) => q.selectAll())).map(readSite)
}

export const countSitesIn = (db: Db, scope: Scope): Promise<number> => countRowsOf(sitesIn(db, scope))

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

/** Locks a site to change it. @throws what `getSite` throws */
export async function lockSite(db: Db, scope: Scope, id: string): Promise<Site> {
  const row = await forUpdate(sitesIn(db, ofOne(scope)).selectAll().where('id', '=', id)).executeTakeFirst()
  return row ? readSite(row) : getSite(db, scope, id)
}

export async function changeSite(db: Db, scope: Scope, site: Site): Promise<void> {
  const { id, ...rest } = siteRows.write(site)
  await db
    .updateTable('sites')
    .set(rest)
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'sites.org_id'))
    .execute()
}

/**
 * Counts the records that refer to a site, including those outside the caller's scope. The caller has checked
 * that the site is in scope.
 */
export async function countUse(db: Db, scope: Scope, site: Site): Promise<SiteUse> {
  const using = (table: 'devices' | 'enrollment_keys' | 'device_groups' | 'organization_membership_sites') =>
    countRowsOf(db.selectFrom(table).where('site_id', '=', site.id))
  return {
    devices: await using('devices'),
    enrollmentKeys: await using('enrollment_keys'),
    deviceGroups: await using('device_groups'),
    // Whoever is limited to it would see nothing any more, and nobody would have decided that.
    memberships: await using('organization_membership_sites'),
    filters: await countFiltersOn(db, scope, site),
  }
}

/** @throws site_in_use when a record still refers to it */
export async function removeSite(db: Db, scope: Scope, id: string): Promise<void> {
  await db
    .deleteFrom('sites')
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'sites.org_id'))
    .execute()
    .catch((error: unknown) => {
      throw isForeignKeyViolation(error) ? new Problem('site_in_use') : error
    })
}
