import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { permissionOf } from '../../core/permissions.ts'
import { idOf, instant, text } from '../../core/schema.ts'

const Pair = z.object({ resource: z.string(), action: z.string() }).meta({ id: 'Permission' })

/** A pair of the catalog; actions of the role builder map to those of the catalog. */
const NewPair = z
  .strictObject({ resource: text(100, 1), action: text(50, 1) })
  .refine((pair) => permissionOf(pair) !== undefined, {
    error: ({ input }) => {
      const { resource, action } = input as { resource: string; action: string }
      return `Unknown permission: ${resource}:${action}`
    },
  })

export const Role = z
  .object({
    id: idOf('role'),
    partnerId: idOf('partner').nullable(),
    orgId: idOf('organization').nullable(),
    scope: z.enum(['system', 'partner', 'organization']),
    name: z.string(),
    description: z.string().nullable(),
    isSystem: z.boolean().describe('Built in: nobody can change it'),
    forceMfa: z.boolean().describe('Holders have to enroll an authenticator first'),
    parentRoleId: idOf('role').nullable(),
    parentRoleName: z.string().nullable(),
    userCount: z.int().describe('Holders within your reach'),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Role' })
export type Role = z.output<typeof Role>

export const RoleDetails = Role.extend({
  permissions: z.array(Pair).describe('Its own, without those it inherits'),
}).meta({ id: 'RoleDetails' })
export type RoleDetails = z.output<typeof RoleDetails>

const fields = {
  name: text(100, 1).describe('Name people see'),
  description: text(1000).nullable().describe('What it is for'),
  permissions: z
    .array(NewPair)
    .max(200, 'must be at most 200 permissions')
    .meta({ flag: 'permission' })
    .describe('What it grants besides what it inherits'),
  parentRoleId: idOf('role').nullable().meta({ flag: 'parent' }).describe('Role to inherit from'),
  forceMfa: z.boolean().describe('Holders have to enroll an authenticator first'),
}

/** The tenant of a role, for callers with access to several. */
const tenant = {
  orgId: idOf('organization').optional().describe('In this organization'),
  partnerId: idOf('partner').optional().describe('In this partner; for system scope'),
}

export const NewRole = z.strictObject({
  ...tenant,
  name: fields.name,
  description: fields.description.default(null),
  permissions: fields.permissions.default([]),
  parentRoleId: fields.parentRoleId.default(null),
  forceMfa: fields.forceMfa.default(false),
})
export type NewRole = z.output<typeof NewRole>

export const RoleChange = z
  .strictObject({
    name: fields.name.optional(),
    description: fields.description.optional(),
    permissions: fields.permissions.optional().describe('Replaces what it grants by itself'),
    parentRoleId: fields.parentRoleId.optional(),
    forceMfa: fields.forceMfa.optional(),
  })
  .refine((change) => Object.keys(change).length > 0, 'names no field to change')
export type RoleChange = z.output<typeof RoleChange>

const Holder = z
  .object({
    id: idOf('user'),
    name: z.string(),
    email: z.string(),
    status: z.enum(['active', 'invited', 'disabled']),
    orgId: idOf('organization').nullable(),
    partnerId: idOf('partner').nullable(),
    lastLoginAt: instant.nullable(),
  })
  .meta({ id: 'RoleHolder' })
export type Holder = z.output<typeof Holder>

export const EffectivePermissions = z
  .object({
    roleId: idOf('role'),
    roleName: z.string(),
    forceMfa: z.boolean().describe('Of the role or of one it inherits from'),
    inheritanceChain: z
      .array(z.object({ id: idOf('role'), name: z.string() }))
      .describe('Roles it inherits from, nearest first'),
    permissions: z.array(
      Pair.extend({ inherited: z.boolean(), sourceRoleId: idOf('role'), sourceRoleName: z.string() }).meta({
        id: 'EffectivePermission',
      }),
    ),
  })
  .meta({ id: 'EffectivePermissions' })
export type EffectivePermissions = z.output<typeof EffectivePermissions>

const tag = 'Roles'
const reads = userAccess({ permission: 'users:read', wholePartner: true })
const writes = userAccess({ permission: 'users:write', wholePartner: true })
const writesInFiles = userAccess({ permission: 'users:write', wholePartner: true, workload: 'files' })
const params = z.strictObject({ id: idOf('role') })
const query = z.strictObject(tenant)
const refusals = ['tenant_required', 'partner_access_limited', 'org_access_denied'] as const

export const roles = {
  list: endpoint({
    method: 'GET',
    path: '/roles',
    summary: 'List the roles that can be held in an organization or partner, built-in ones included',
    tag,
    access: userAccess({ permission: 'users:read', wholePartner: true, workload: 'files' }),
    query: z.strictObject({ ...tenant, ...pageQuery() }),
    reply: pageOf(Role),
    errors: refusals,
  }),
  create: endpoint({
    method: 'POST',
    path: '/roles',
    idempotencyKey: 'honored',
    summary: 'Create a role',
    tag,
    access: writesInFiles,
    body: NewRole,
    status: 201,
    reply: RoleDetails,
    audit: { action: 'role.create', resource: 'role' },
    quota: 'ROLES',
    errors: refusals,
    example: { name: 'Night Shift', permissions: [{ resource: 'devices', action: 'read' }] },
  }),
  available: endpoint({
    method: 'GET',
    path: '/roles/permissions/available',
    summary: 'List the resources and actions of the role builder',
    tag,
    access: reads,
    reply: z.object({ resources: z.array(z.string()), actions: z.array(z.string()) }),
  }),
  show: endpoint({
    method: 'GET',
    path: '/roles/:id',
    summary: 'Show a role with its own permissions',
    tag,
    access: reads,
    params,
    query,
    reply: RoleDetails,
    errors: refusals,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/roles/:id',
    summary: 'Change a role that is not built in',
    tag,
    access: writesInFiles,
    params,
    query,
    body: RoleChange,
    reply: RoleDetails,
    audit: { action: 'role.update', resource: 'role' },
    errors: [...refusals, 'system_role', 'own_role', 'last_administrator'],
    example: { description: 'Watches devices at night' },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/roles/:id',
    summary: 'Delete a role that no person, role or SSO provider uses',
    tag,
    access: userAccess({ permission: 'users:delete', wholePartner: true, workload: 'files' }),
    params,
    query,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    audit: { action: 'role.delete', resource: 'role' },
    errors: [...refusals, 'system_role', 'role_in_use'],
  }),
  clone: endpoint({
    method: 'POST',
    path: '/roles/:id/clone',
    idempotencyKey: 'honored',
    summary: 'Copy a role with everything it grants, inherited permissions included',
    tag,
    access: writes,
    params,
    body: z.strictObject({
      ...tenant,
      name: fields.name,
      description: fields.description.optional().describe('By default, says what it was cloned from'),
    }),
    status: 201,
    reply: RoleDetails,
    audit: { action: 'role.clone', resource: 'role' },
    quota: 'ROLES',
    errors: refusals,
    example: { name: 'Night Shift Lead' },
  }),
  holders: endpoint({
    method: 'GET',
    path: '/roles/:id/users',
    summary: 'List who holds a role',
    tag,
    access: reads,
    params,
    query: z.strictObject({ ...tenant, ...pageQuery() }),
    reply: pageOf(Holder),
    errors: refusals,
  }),
  effective: endpoint({
    method: 'GET',
    path: '/roles/:id/effective-permissions',
    summary: 'Show what a role grants, and which role of its chain grants it',
    tag,
    access: reads,
    params,
    query,
    reply: EffectivePermissions,
    errors: refusals,
  }),
}
