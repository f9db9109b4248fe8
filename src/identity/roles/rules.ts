import { type Fault, invalid, Problem } from '../../core/errors.ts'
import { pluralize } from '../../core/finding.ts'
import {
  hasPermission,
  missingPermissions,
  type Permission,
  type PermissionPair,
  pairOf,
  permissionOf,
} from '../../core/permissions.ts'
import { truncateStorable } from '../../core/text.ts'
import type { UserCaller, WorkloadCaller } from '../../handler.ts'
import type { Tenant } from '../rules.ts'
import type { EffectivePermissions, NewRole, RoleChange } from './contract.ts'

/** A role and its own permissions. */
export type RoleNode = {
  id: string
  name: string
  parentRoleId: string | null
  forceMfa: boolean
  permissions: readonly string[]
}

/** A role and those it inherits from, nearest first. */
export type RoleChain = readonly [RoleNode, ...RoleNode[]]

/** A user can only grant permissions that they hold. @throws forbidden, naming the permissions the granter lacks */
export function checkMayGrant(held: ReadonlySet<string>, granted: Iterable<string>): void {
  const lacking = missingPermissions(held, granted)
  if (lacking.length === 0) return
  throw new Problem('forbidden', `Cannot assign permission not held by caller: ${lacking.join(', ')}`, {
    details: { lacking },
  })
}

type Granter = UserCaller | WorkloadCaller

export const grantableBy = (by: Granter): ReadonlySet<string> =>
  by.kind === 'workload' ? by.grantable : by.permissions

/** The same for what people are to have, by a role or an identity provider. @throws forbidden */
export function checkMayGrantPeople(by: Granter, granted: Iterable<string>): void {
  const wanted = [...granted]
  checkMayGrant(by.permissions, wanted)
  const lacking = missingPermissions(grantableBy(by), wanted)
  if (lacking.length === 0) return
  const why =
    'it lets people create enrollment keys beyond the maxUsage and maxTtlMinutes of the own trust policy'
  throw new Problem('forbidden', `Cannot assign ${lacking.join(', ')}: ${why}`, { details: { lacking } })
}

/**
 * A user cannot change a role that grants permissions they lack, by itself, through a parent or to roles that
 * inherit from it: holders with more permissions would lose them, or the factor that guards them.
 * @throws forbidden, naming the permissions the caller lacks
 */
export function checkMayChange(held: ReadonlySet<string>, granted: Iterable<string>): void {
  const lacking = [...granted].filter((pair) => !hasPermission(held, pair as Permission)).sort()
  if (lacking.length === 0) return
  throw new Problem('forbidden', `This role grants permissions that you do not hold: ${lacking.join(', ')}`, {
    details: { lacking },
  })
}

/** @throws system_role */
export function checkNotBuiltIn(role: { isSystem: boolean }, message: string): void {
  if (role.isSystem) throw new Problem('system_role', message)
}

/** Names of permissions in the catalog, each once, sorted. */
export function permissionNames(pairs: readonly PermissionPair[]): string[] {
  const names = pairs.map((pair) => permissionOf(pair))
  return [...new Set(names.filter((name) => name !== undefined))].sort()
}

/** All permissions that a chain grants. */
export const grantedPermissions = (chain: readonly RoleNode[]): Set<string> =>
  new Set(chain.flatMap(({ permissions }) => permissions))

export const forcesMfa = (chain: readonly RoleNode[]): boolean => chain.some(({ forceMfa }) => forceMfa)

/** The first role of the chain that grants the permission, and the pattern that matches it. */
export function findGrantSource(
  chain: readonly RoleNode[],
  wanted: Permission,
): { link: RoleNode; permission: string } | undefined {
  for (const link of chain) {
    const own = link.permissions.includes(wanted)
      ? wanted
      : link.permissions.find((permission) => hasPermission(new Set([permission]), wanted))
    if (own !== undefined) return { link, permission: own }
  }
  return undefined
}

/** The permissions of a role and the role each comes from; the nearest one when several grant the same. */
export function toEffectivePermissions(chain: RoleChain): EffectivePermissions {
  const [role, ...ancestors] = chain
  const sources = new Map<string, RoleNode>()
  for (const link of chain) {
    for (const permission of link.permissions) {
      if (!sources.has(permission)) sources.set(permission, link)
    }
  }
  return {
    roleId: role.id,
    roleName: role.name,
    forceMfa: forcesMfa(chain),
    inheritanceChain: ancestors.map(({ id, name }) => ({ id, name })),
    permissions: [...sources.keys()].sort().map((permission) => {
      const { id, name } = sources.get(permission)!
      return {
        ...pairOf(permission),
        inherited: id !== role.id,
        sourceRoleId: id,
        sourceRoleName: name,
      }
    }),
  }
}

type RoleTree = readonly { id: string; parentRoleId: string | null }[]

/**
 * The chain of a role under a parent, or alone. `below`: the role and all that inherit from it.
 * @throws invalid_request when the role would inherit from itself, or the chain would grow too long
 */
export function buildChain(role: RoleNode, parent: RoleChain | undefined, below: RoleTree): RoleChain {
  if (!parent) return [role]
  if (parent.some(({ id }) => id === role.id)) {
    throw invalidParent('Cannot set parent role: would create circular inheritance')
  }
  if (parent.length + countLevels(below, role.id) > maxDepth) {
    throw invalidParent(`Cannot set parent role: roles inherit over at most ${maxDepth} levels`)
  }
  return [role, ...parent]
}

/** Most roles in a chain: every request of a holder reads all of it. */
const maxDepth = 20

function countLevels(below: RoleTree, top: string): number {
  let level = new Set([top])
  for (let levels = 1; ; levels += 1) {
    const above = level
    level = new Set(below.filter(({ parentRoleId }) => above.has(parentRoleId ?? '')).map(({ id }) => id))
    if (level.size === 0) return levels
  }
}

export function invalidParent(message: string): Problem {
  const fault: Fault = { path: 'body.parentRoleId', message }
  return invalid([fault], message)
}

/** Whether a change affects access, and not only name or description. */
export const changesAccess = (before: RoleNode, after: RoleNode): boolean =>
  before.parentRoleId !== after.parentRoleId ||
  before.forceMfa !== after.forceMfa ||
  [...before.permissions].sort().join() !== [...after.permissions].sort().join()

export const applyChange = (link: RoleNode, change: RoleChange): RoleNode => ({
  ...link,
  name: change.name ?? link.name,
  parentRoleId: change.parentRoleId === undefined ? link.parentRoleId : change.parentRoleId,
  forceMfa: change.forceMfa ?? link.forceMfa,
  permissions: change.permissions === undefined ? link.permissions : permissionNames(change.permissions),
})

/** A new role of a tenant. */
export function makeRole(
  wanted: Omit<NewRole, 'orgId' | 'partnerId' | 'permissions'>,
  tenant: Tenant,
  { id, now }: { id: string; now: string },
) {
  const { name, description, parentRoleId, forceMfa } = wanted
  return {
    id,
    partnerId: tenant.kind === 'partner' ? tenant.partnerId : null,
    orgId: tenant.kind === 'organization' ? tenant.orgId : null,
    parentRoleId,
    scope: tenant.kind as string,
    name,
    description,
    isSystem: false,
    forceMfa,
    createdAt: now,
    updatedAt: now,
  }
}

/** What a role is in use by. Holders are people who have accepted, and who are invited. */
export type RoleUse = { userCount: number; childRoleCount: number; providerCount: number }

/** @throws role_in_use, with the counts */
export function checkUnused(use: RoleUse): void {
  const { userCount, childRoleCount, providerCount } = use
  const said = (count: number, one: string, many: string) =>
    count === 0 ? [] : [pluralize(count, one, many)]
  const parts = [
    ...said(userCount, 'person holds it or is invited to it', 'people hold it or are invited to it'),
    ...said(childRoleCount, 'role inherits from it', 'roles inherit from it'),
    ...said(providerCount, 'SSO provider has it as its default', 'SSO providers have it as their default'),
  ]
  if (parts.length === 0) return
  const isHeldOnly = childRoleCount === 0 && providerCount === 0
  const message = isHeldOnly
    ? 'Cannot delete role with assigned users'
    : `Cannot delete role that is in use: ${parts.join(', ')}`
  throw new Problem('role_in_use', message, { details: use })
}

/** Description of a copy, cut to the length of a description without splitting a character. */
export const cloneDescription = (role: { name: string; description: string | null }): string => {
  const whole = `Cloned from ${role.name}${role.description === null ? '' : `: ${role.description}`}`
  return truncateStorable(whole, 1000)
}

/** A role can only be held in tenants of its scope, and so can a copy of it. */
export function scopeMismatch(scope: string, wanted: string): Problem {
  const path = scope === 'organization' ? 'body.orgId' : 'body.partnerId'
  const message = `a role of ${scope} scope cannot be cloned into ${wanted} scope`
  return invalid([{ path, message }], `Invalid role for this scope: ${message}`)
}

type DiffableRole = Pick<RoleNode, 'name' | 'parentRoleId' | 'forceMfa' | 'permissions'> & {
  description: string | null
}
const diffableFields = ['name', 'description', 'parentRoleId', 'forceMfa', 'permissions'] as const

/** The fields that differ, before and after. */
export function auditDiff(before: DiffableRole, after: DiffableRole) {
  const differing = diffableFields.filter((key) => String(before[key]) !== String(after[key]))
  const of = (role: DiffableRole) => Object.fromEntries(differing.map((key) => [key, role[key]]))
  return { before: of(before), after: of(after), details: { changedFields: differing } }
}
