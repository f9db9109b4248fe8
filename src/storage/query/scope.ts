import { type Expression, type SqlBool, sql } from 'kysely'
import type { PartnerScope, Scope } from '../../core/scope.ts'

/**
 * What a caller may see, for `.where(...)`; `column` holds an organization's id (`devices.org_id`).
 *
 * - system: every row, including those without an organization.
 * - partner: rows of its organizations that the caller is granted.
 * - organization: its rows, also when it is deleted. Sign-in refuses a deleted one, and background work checks it.
 *
 * Partner scope hides rows of a deleted organization, and so does system scope; `inScopeHistory` finds them.
 * Rows without an organization are visible to system only.
 */
export function inScope(scope: Scope, column: string): Expression<SqlBool> {
  return holdsInScope(scope, sql.ref(column))
}

/** The same for the audit log, which outlives its subjects: includes deleted organizations. */
export function inScopeHistory(scope: Scope, column: string): Expression<SqlBool> {
  return heldInHistory(scope, sql.ref(column))
}

/**
 * The same for rows selected by their ids, without the index over the column: SQLite would rather walk a whole
 * organization than look up some hundred ids.
 */
export function inScopeHistoryUnindexed(scope: Scope, column: string): Expression<SqlBool> {
  return heldInHistory(scope, sql`(${sql.ref(column)} || '')`)
}

const all = sql<SqlBool>`1 = 1`

function holdsInScope(scope: Scope, value: Expression<unknown>): Expression<SqlBool> {
  // Deleted organizations are few: a list of them, read once, leaves the query its index and order.
  if (scope.kind === 'system')
    return sql<SqlBool>`(${value} is null or ${value} not in (
    select scope_orgs.id from organizations as scope_orgs where scope_orgs.deleted_at is not null
  ))`
  return heldByTenant(scope, value, sql` and scope_orgs.deleted_at is null`)
}

const heldInHistory = (scope: Scope, value: Expression<unknown>): Expression<SqlBool> =>
  scope.kind === 'system' ? all : heldByTenant(scope, value, sql``)

type Tenants = Exclude<Scope, { kind: 'system' }>

/** Ids of the organizations of a partner that a caller is granted. */
function grantedOrgs({ partnerId, orgs }: PartnerScope, which: Expression<unknown>) {
  const granted = orgs === 'all' ? sql`` : sql` and scope_orgs.id in (${sql.join(orgs)})`
  return sql<string>`select scope_orgs.id from organizations as scope_orgs
    where scope_orgs.partner_id = ${partnerId}${which}${granted}`
}

/** Those of `inScopeHistory`, for a partner that sees any. */
export const orgsInHistory = (scope: PartnerScope): Expression<string> => grantedOrgs(scope, sql``)

function heldByTenant(scope: Tenants, value: Expression<unknown>, which: Expression<unknown>) {
  if (scope.kind === 'organization') return sql<SqlBool>`${value} = ${scope.orgId}`
  if (scope.orgs !== 'all' && scope.orgs.length === 0) return sql<SqlBool>`1 = 0`
  const orgs = grantedOrgs(scope, which)
  return scope.isOfOne
    ? sql<SqlBool>`exists (${orgs} and scope_orgs.id = ${value})`
    : sql<SqlBool>`${value} in (${orgs})`
}

/** The same for a column with a partner's id, for rows that belong to the partner itself and to no organization. */
export function inPartner(scope: Scope, column: string): Expression<SqlBool> {
  if (scope.kind === 'system') return sql<SqlBool>`1 = 1`
  if (scope.kind === 'organization') return sql<SqlBool>`1 = 0`
  return sql<SqlBool>`${sql.ref(column)} = ${scope.partnerId}`
}

/** Rows of a table whose records belong to an organization, or to the partner itself. */
export const inTenants = (scope: Scope, table: string): Expression<SqlBool> =>
  sql<SqlBool>`(${inScope(scope, `${table}.org_id`)} or (${inPartner(scope, `${table}.partner_id`)} and ${sql.ref(`${table}.org_id`)} is null))`

/** The same for a column that holds a site's id: a membership may be narrowed to some sites. */
export function inSites(scope: Scope, column: string): Expression<SqlBool> {
  if (scope.kind !== 'organization' || scope.siteIds === null) return sql<SqlBool>`1 = 1`
  if (scope.siteIds.length === 0) return sql<SqlBool>`1 = 0`
  return sql<SqlBool>`${sql.ref(column)} in (${sql.join(scope.siteIds)})`
}

/** The same for a column that holds a device's id: a membership may be narrowed to some device groups. */
export function inGroups(scope: Scope, column: string): Expression<SqlBool> {
  if (scope.kind !== 'organization' || scope.groupIds === null) return sql<SqlBool>`1 = 1`
  if (scope.groupIds.length === 0) return sql<SqlBool>`1 = 0`
  return sql<SqlBool>`${sql.ref(column)} in (
    select device_id from device_group_devices where group_id in (${sql.join(scope.groupIds)})
  )`
}

/** The same for a column that holds a device group's id: the groups a membership is narrowed to. */
export function isScopedGroup(scope: Scope, column: string): Expression<SqlBool> {
  if (scope.kind !== 'organization' || scope.groupIds === null) return sql<SqlBool>`1 = 1`
  if (scope.groupIds.length === 0) return sql<SqlBool>`1 = 0`
  return sql<SqlBool>`${sql.ref(column)} in (${sql.join(scope.groupIds)})`
}
