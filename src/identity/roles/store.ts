import type { Expression, ExpressionBuilder, SqlBool } from 'kysely'
import { Problem } from '../../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../../core/page.ts'
import { ofOne, type Scope, systemScope } from '../../core/scope.ts'
import { isForeignKeyViolation } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { readById, readPage } from '../../storage/query/pages.ts'
import { inTenants } from '../../storage/query/scope.ts'
import { rowsOf, type Value } from '../../storage/schema/rows.ts'
import type { RoleRow, Tables } from '../../storage/schema/tables.ts'
import { type SessionContext, scopeOfTenant, type Tenant } from '../rules.ts'
import type * as contract from './contract.ts'
import { countHolders } from './holders.ts'

type SummaryRow = RoleRow & { parent_role_name: string | null; user_count: number }

const roleRows = rowsOf<RoleRow>()({ flags: ['is_system', 'force_mfa'] })
const summaryRows = rowsOf<SummaryRow>()({ flags: ['is_system', 'force_mfa'] })

export type Role = Value<RoleRow, never, 'is_system' | 'force_mfa'>

/** Roles that members of a tenant can have: the built-in ones of its kind, and its own. */
function availableIn(eb: ExpressionBuilder<Tables, 'roles'>, tenant: Tenant): Expression<SqlBool> {
  const own =
    tenant.kind === 'partner'
      ? eb.and([eb('roles.partner_id', '=', tenant.partnerId), eb('roles.org_id', 'is', null)])
      : eb('roles.org_id', '=', tenant.orgId)
  return eb.and([eb('roles.scope', '=', tenant.kind), eb.or([eb('roles.is_system', '=', 1), own])])
}

/** Visible roles: the built-in ones, and those of the tenants in the scope. */
const visibleRoles = (db: Db, scope: Scope) =>
  db.selectFrom('roles').where((eb) => eb.or([eb('roles.is_system', '=', 1), inTenants(scope, 'roles')]))

export async function findRole(db: Db, tenant: Tenant, id: string): Promise<Role | undefined> {
  const found = db.selectFrom('roles').selectAll().where('id', '=', id)
  const row = await found.where((eb) => availableIn(eb, tenant)).executeTakeFirst()
  return row && roleRows.read(row)
}

/** The roles of a tenant, by name; in system scope those of every tenant. */
export async function listRoles(
  db: Db,
  context: SessionContext,
  page: PageQuery,
): Promise<Page<contract.Role>> {
  const found =
    context.kind === 'system'
      ? visibleRoles(db, systemScope)
      : db.selectFrom('roles').where((eb) => availableIn(eb, context))
  const byName = (q: typeof found) =>
    q
      .leftJoin('roles as parents', 'parents.id', 'roles.parent_role_id')
      .selectAll('roles')
      .select('parents.name as parent_role_name')
      .orderBy('roles.name')
      .orderBy('roles.id')
  const { data: rows, pagination } = await readPage(found, page, byName, (row) => row)
  const scope = context.kind === 'system' ? systemScope : scopeOfTenant(context)
  const counts = new Map<string, number>()
  for (const kind of ['partner', 'organization']) {
    const ids = rows.filter((row) => row.scope === kind).map(({ id }) => id)
    for (const [id, count] of await countHolders(db, scope, kind, ids)) counts.set(id, count)
  }
  const data = rows.map((row) => summaryRows.read({ ...row, user_count: counts.get(row.id) ?? 0 }))
  return { data: data as contract.Role[], pagination }
}

/** Without the built-in ones. */
export const countRolesIn = (db: Db, scope: Scope): Promise<number> =>
  countRowsOf(db.selectFrom('roles').where('is_system', '=', 0).where(inTenants(scope, 'roles')))

/** Visible roles with their own permissions, by id. */
export async function listVisibleRoles(
  db: Db,
  scope: Scope,
  page: IdPage,
): Promise<(Role & { permissions: string[] })[]> {
  const rows = await readById(visibleRoles(db, scope), 'roles.id', page, (q) => q.selectAll())
  if (rows.length === 0) return []
  const ids = rows.map(({ id }) => id)
  const granted = await db
    .selectFrom('role_permissions')
    .select(['role_id', 'permission'])
    .where('role_id', 'in', ids)
    .execute()
  const byRole = Map.groupBy(granted, ({ role_id }) => role_id)
  return rows.map((row) => ({
    ...roleRows.read(row),
    permissions: (byRole.get(row.id) ?? []).map(({ permission }) => permission),
  }))
}

export async function findVisibleRole(db: Db, scope: Scope, id: string): Promise<contract.Role | undefined> {
  const row = await visibleRoles(db, ofOne(scope))
    .leftJoin('roles as parents', 'parents.id', 'roles.parent_role_id')
    .selectAll('roles')
    .select('parents.name as parent_role_name')
    .where('roles.id', '=', id)
    .executeTakeFirst()
  if (!row) return undefined
  const counts = await countHolders(db, scope, row.scope, [row.id])
  return summaryRows.read({ ...row, user_count: counts.get(row.id) ?? 0 }) as contract.Role
}

/** @throws not_found, also for a role outside the scope */
export async function getRole(db: Db, scope: Scope, id: string): Promise<contract.Role> {
  const role = await findVisibleRole(db, scope, id)
  if (!role) throw new Problem('not_found', 'Role not found')
  return role
}

export async function insertRole(db: Db, role: Role, permissions: readonly string[]): Promise<void> {
  await db.insertInto('roles').values(roleRows.write(role)).execute()
  await insertPermissions(db, role.id, permissions)
}

async function insertPermissions(db: Db, roleId: string, permissions: readonly string[]): Promise<void> {
  if (permissions.length === 0) return
  const rows = permissions.map((permission) => ({ role_id: roleId, permission }))
  await db.insertInto('role_permissions').values(rows).execute()
}

/** Does not change a built-in role. `permissions` replace the role's own permissions. */
export async function changeRole(
  db: Db,
  scope: Scope,
  role: Pick<Role, 'id' | 'name' | 'description' | 'parentRoleId' | 'forceMfa' | 'updatedAt'>,
  permissions: readonly string[] | undefined,
): Promise<void> {
  const { id, name, description, parentRoleId, forceMfa, updatedAt } = role
  const change = { name, description, parentRoleId, forceMfa, updatedAt }
  await db
    .updateTable('roles')
    .set(roleRows.write(change))
    .where('id', 'in', visibleRoles(db, ofOne(scope)).select('roles.id').where('roles.id', '=', id))
    .where('is_system', '=', 0)
    .execute()
  if (permissions === undefined) return
  await db.deleteFrom('role_permissions').where('role_id', '=', id).execute()
  await insertPermissions(db, id, permissions)
}

/** @throws role_in_use when it was assigned meanwhile */
export async function removeRole(db: Db, scope: Scope, id: string): Promise<void> {
  await db
    .deleteFrom('roles')
    .where('id', 'in', visibleRoles(db, ofOne(scope)).select('roles.id').where('roles.id', '=', id))
    .where('is_system', '=', 0)
    .execute()
    .catch((error: unknown) => {
      throw isForeignKeyViolation(error) ? new Problem('role_in_use') : error
    })
}

/**
 * What refers to a role, besides its holders: roles below it, and SSO providers that give it to new people, which would lose
 * it without a word. The lock keeps others from referring to it until the role is gone. The caller has found the role in its scope.
 */
export async function countReferences(
  db: Db,
  id: string,
): Promise<{ childRoleCount: number; providerCount: number }> {
  await forUpdate(db.selectFrom('roles').select('id').where('id', '=', id)).executeTakeFirst()
  return {
    childRoleCount: await countRowsOf(db.selectFrom('roles').where('parent_role_id', '=', id)),
    providerCount: await countRowsOf(db.selectFrom('sso_providers').where('default_role_id', '=', id)),
  }
}
