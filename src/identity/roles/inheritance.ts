import type { Db } from '../../storage/open.ts'
import { prepared } from '../../storage/query/prepared.ts'
import type { RoleChain, RoleNode } from './rules.ts'

/*
 * Queries along role inheritance. A chain never leaves its tenant except to built-in roles, so a caller who may
 * see a role may see what it inherits from; callers look the role itself up in their scope first.
 */

const selectChain = prepared((db, p: { roleId: string }) =>
  db
    .withRecursive('chain(id, name, parent_role_id, force_mfa)', (cte) =>
      cte
        .selectFrom('roles')
        .select(['id', 'name', 'parent_role_id', 'force_mfa'])
        .where('id', '=', p.roleId)
        .union(
          cte
            .selectFrom('roles')
            .innerJoin('chain', 'chain.parent_role_id', 'roles.id')
            .select(['roles.id', 'roles.name', 'roles.parent_role_id', 'roles.force_mfa']),
        ),
    )
    .selectFrom('chain')
    .leftJoin('role_permissions', 'role_permissions.role_id', 'chain.id')
    .select(['chain.id', 'chain.name', 'chain.parent_role_id', 'chain.force_mfa'])
    .select('role_permissions.permission')
    .orderBy('role_permissions.permission'),
)

/** A role and those it inherits from, nearest first. */
export async function findRoleChain(db: Db, roleId: string): Promise<RoleChain | undefined> {
  const rows = await selectChain(db, { roleId })
  const links = new Map<string, RoleNode & { permissions: string[] }>()
  for (const row of rows) {
    const { id, name, parent_role_id: parentRoleId, force_mfa: forceMfa, permission } = row
    const link = links.get(id) ?? { id, name, parentRoleId, forceMfa: forceMfa === 1, permissions: [] }
    if (permission !== null) link.permissions.push(permission)
    links.set(id, link)
  }
  const chain: RoleNode[] = []
  for (let link = links.get(roleId); link && chain.length < links.size; ) {
    chain.push(link)
    link = links.get(link.parentRoleId ?? '')
  }
  return chain.length > 0 ? (chain as unknown as RoleChain) : undefined
}

const selectDescendants = prepared((db, p: { roleId: string }) =>
  db
    .withRecursive('below(id, parent_role_id)', (cte) =>
      cte
        .selectFrom('roles')
        .select(['id', 'parent_role_id'])
        .where('id', '=', p.roleId)
        .union(
          cte
            .selectFrom('roles')
            .innerJoin('below', 'below.id', 'roles.parent_role_id')
            .select(['roles.id', 'roles.parent_role_id']),
        ),
    )
    .selectFrom('below')
    .select(['id', 'parent_role_id as parentRoleId']),
)

/** A role and all roles that inherit from it. */
export async function listDescendants(
  db: Db,
  roleId: string,
): Promise<{ id: string; parentRoleId: string | null }[]> {
  return selectDescendants(db, { roleId })
}
