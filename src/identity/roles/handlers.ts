import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { pairOf, roleBuilderCatalog } from '../../core/permissions.ts'
import type { Scope } from '../../core/scope.ts'
import type { AuditFacts, HandlersOf, UserCaller, WorkloadCaller } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { hasFullAdmin, lockTenant } from '../administrators.ts'
import type { Tenant } from '../rules.ts'
import { findTenant, getNamedScope, getTenant } from '../tenant.ts'
import type * as contract from './contract.ts'
import { listHeldRoles, listHolders } from './holders.ts'
import { findRoleChain, listDescendants } from './inheritance.ts'
import * as rules from './rules.ts'
import * as store from './store.ts'

export const roles: HandlersOf<typeof contract.roles> = {
  async list({ db, scope, query }) {
    return store.listRoles(db, (await findTenant(db, scope, query)) ?? { kind: 'system' }, query)
  },

  available: async () => ({
    resources: [...roleBuilderCatalog.resources],
    actions: [...roleBuilderCatalog.actions],
  }),

  async show({ db, scope, params, query }) {
    return getDetails(db, await getNamedScope(db, scope, query), params.id)
  },

  async create({ db, scope, caller, body, now, quota }) {
    const { orgId, partnerId, permissions, ...wanted } = body
    const tenant = await getTenant(db, scope, { orgId, partnerId })
    await lockTenant(db, tenant)
    const role = rules.makeRole(wanted, tenant, { id: newId(), now })
    const link = { ...role, permissions: rules.permissionNames(permissions) }
    const parent = await getParentChain(db, scope, tenant, role.parentRoleId)
    rules.checkMayGrantPeople(caller, rules.grantedPermissions(rules.buildChain(link, parent, [role])))
    await quota(role)
    await store.insertRole(db, role, link.permissions)
    return getDetails(db, scope, role.id)
  },

  async update({ db, scope, caller, params, query, body, now, note }) {
    const reach = await getNamedScope(db, scope, query)
    const { role: found, tenant } = await lockRole(db, reach, params.id, note, 'Cannot modify system roles')
    const before = await getChain(db, found.id)
    const below = await listDescendants(db, found.id)
    const link = rules.applyChange(before[0], body)
    const parent = await getParentChain(db, scope, tenant, link.parentRoleId)
    const after = rules.buildChain(link, parent, below)
    const changesPower = rules.changesAccess(before[0], link)
    rules.checkMayChange(caller.permissions, rules.grantedPermissions(before))
    if (changesPower) {
      await checkNotOwnRole(db, caller, below)
      rules.checkMayGrantPeople(caller, rules.grantedPermissions(after))
      for (const { id } of below) {
        rules.checkMayChange(caller.permissions, rules.grantedPermissions(await getChain(db, id)))
      }
    }
    const governed = changesPower && (await hasFullAdmin(db, tenant))
    const description = body.description === undefined ? found.description : body.description
    const change = { ...link, description, updatedAt: now }
    await store.changeRole(db, reach, change, body.permissions && link.permissions)
    if (governed && !(await hasFullAdmin(db, tenant))) throw new Problem('last_administrator')
    const differences = rules.auditDiff({ ...before[0], description: found.description }, change)
    note({ ...differences, resourceName: link.name })
    return getDetails(db, reach, found.id)
  },

  async remove({ db, scope, caller, params, query, note }) {
    const reach = await getNamedScope(db, scope, query)
    const { role } = await lockRole(db, reach, params.id, note, 'Cannot delete system roles')
    rules.checkUnused({ userCount: role.userCount, ...(await store.countReferences(db, role.id)) })
    const chain = await getChain(db, role.id)
    rules.checkMayChange(caller.permissions, rules.grantedPermissions(chain))
    const { permissions } = chain[0]
    await store.removeRole(db, reach, role.id)
    const { name, description, parentRoleId, forceMfa } = role
    note({ before: { name, description, parentRoleId, forceMfa, permissions } })
    return { success: true, message: 'Role deleted' }
  },

  async clone({ db, scope, caller, params, body, now, note, quota }) {
    const source = await store.getRole(db, scope, params.id)
    const { orgId, partnerId } = body
    const named = orgId !== undefined || partnerId !== undefined
    const tenant =
      named || source.isSystem ? await getTenant(db, scope, { orgId, partnerId }) : tenantOf(source)
    if (tenant.kind !== source.scope) throw rules.scopeMismatch(source.scope, tenant.kind)
    await lockTenant(db, tenant)
    const chain = await getChain(db, source.id)
    const permissions = [...rules.grantedPermissions(chain)].sort()
    rules.checkMayGrantPeople(caller, permissions)
    const wanted = {
      name: body.name,
      description: body.description === undefined ? rules.cloneDescription(source) : body.description,
      parentRoleId: null,
      forceMfa: rules.forcesMfa(chain),
    }
    const role = rules.makeRole(wanted, tenant, { id: newId(), now })
    await quota(role)
    await store.insertRole(db, role, permissions)
    note({ details: { clonedFrom: { id: source.id, name: source.name } } })
    return getDetails(db, scope, role.id)
  },

  async holders({ db, scope, params, query }) {
    const reach = await getNamedScope(db, scope, query)
    return listHolders(db, reach, await store.getRole(db, reach, params.id), query)
  },

  async effective({ db, scope, params, query }) {
    const role = await store.getRole(db, await getNamedScope(db, scope, query), params.id)
    return rules.toEffectivePermissions(await getChain(db, role.id))
  },
}

const tenantOf = ({ orgId, partnerId }: Pick<contract.Role, 'orgId' | 'partnerId'>): Tenant =>
  orgId === null ? { kind: 'partner', partnerId: partnerId! } : { kind: 'organization', orgId }

/** Locks a role that may be changed. @throws not_found, system_role */
async function lockRole(
  db: Db,
  reach: Scope,
  id: string,
  note: (facts: AuditFacts) => void,
  refusal: string,
): Promise<{ role: contract.Role; tenant: Tenant }> {
  const found = await store.getRole(db, reach, id)
  note({ orgId: found.orgId, resourceName: found.name })
  rules.checkNotBuiltIn(found, refusal)
  const tenant = tenantOf(found)
  await lockTenant(db, tenant)
  return { role: await store.getRole(db, reach, id), tenant }
}

async function getDetails(db: Db, scope: Scope, id: string): Promise<contract.RoleDetails> {
  const role = await store.getRole(db, scope, id)
  const [own] = await getChain(db, id)
  return { ...role, permissions: own.permissions.map(pairOf) }
}

async function getChain(db: Db, id: string): Promise<rules.RoleChain> {
  const chain = await findRoleChain(db, id)
  if (!chain) throw new Problem('not_found', 'Role not found')
  return chain
}

/** @throws invalid_request for a role that cannot be a parent in this tenant */
async function getParentChain(
  db: Db,
  scope: Scope,
  tenant: Tenant,
  id: string | null,
): Promise<rules.RoleChain | undefined> {
  if (id === null) return undefined
  if (await store.findRole(db, tenant, id)) return getChain(db, id)
  const elsewhere = await store.findVisibleRole(db, scope, id)
  if (!elsewhere) throw rules.invalidParent('Parent role not found')
  throw rules.invalidParent(
    elsewhere.scope === tenant.kind
      ? 'Parent role must be of the same tenant'
      : 'Parent role must be in the same scope',
  )
}

/**
 * No user changes their own permissions, up or down, here or in another tenant; another administrator has to do
 * it. The system administrator has every permission whatever roles say, and a workload those of its policy.
 * @throws own_role
 */
async function checkNotOwnRole(
  db: Db,
  caller: UserCaller | WorkloadCaller,
  below: readonly { id: string }[],
): Promise<void> {
  if (caller.scope.kind === 'system') return
  const held = new Set(await listHeldRoles(db, caller.id))
  if (below.some(({ id }) => held.has(id))) throw new Problem('own_role')
}
