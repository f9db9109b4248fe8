import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { idOf, idPrefix, instant, text } from '../../core/schema.ts'

const tag = 'Users'

const status = z.enum(['active', 'invited', 'disabled'])
const name = text(255, 1).describe('Name people see')
const isWebAddress = (value: string): boolean => /^https?:$/.test(URL.parse(value)?.protocol ?? '')
const avatarUrl = text(2048).refine(isWebAddress, 'must be an http or https URL').nullable()

/** Names the tenant, for callers with access to several. */
export const tenant = {
  orgId: idOf('organization').optional().describe('As a member of this organization'),
  partnerId: idOf('partner').optional().describe('As a member of this partner'),
}

export const orgAccess = z.enum(['all', 'selected', 'none'])
const listOf = (kind: Parameters<typeof idOf>[0], flag: string, formerFlag: string) =>
  z.array(idOf(kind)).max(1000, 'must be at most 1000').meta({ flag, formerFlag })
export const orgIds = listOf('organization', 'selected-org', 'org-ids')
export const siteIds = listOf('site', 'site', 'site-ids')
export const deviceGroupIds = listOf('device_group', 'group', 'device-group-ids')

const membership = {
  partnerId: idOf('partner').nullable(),
  orgId: idOf('organization').nullable(),
  roleId: idOf('role').nullable(),
  roleName: z.string().nullable(),
  orgAccess: orgAccess.nullable().describe('Organizations of the partner that are in reach'),
  orgIds: z.array(idOf('organization')).nullable().describe('Which, when orgAccess is selected'),
  siteIds: z.array(idOf('site')).nullable().describe('Sites in reach; null is all of them'),
  deviceGroupIds: z.array(idOf('device_group')).nullable().describe('Device groups in reach; null is all'),
}

export const Membership = z.object({ ...membership, status, createdAt: instant }).meta({ id: 'Membership' })
export type Membership = z.output<typeof Membership>

/** A person as an administrator of a tenant sees them. */
export const User = z
  .object({
    id: idOf('user'),
    email: z.string(),
    name: z.string(),
    status: status.describe('In this tenant: invited until its holder accepts, and disabled here alone'),
    avatarUrl: z.string().nullable(),
    mfaEnabled: z
      .boolean()
      .nullable()
      .describe('null for a person of other tenants as well: their profile is not yours to see'),
    mfaMethod: z.enum(['totp', 'sms']).nullable(),
    lastLoginAt: instant.nullable(),
    createdAt: instant,
    updatedAt: instant,
    ...membership,
  })
  .meta({ id: 'User' })
export type User = z.output<typeof User>

const UserDetails = User.extend({
  phoneNumber: z.string().nullable(),
  phoneVerified: z.boolean(),
  passwordChangedAt: instant.nullable(),
  memberships: z.array(Membership).describe('Every membership within your reach'),
}).meta({ id: 'UserDetails' })

const Profile = z
  .object({
    id: idOf('user'),
    email: z.string(),
    name: z.string(),
    avatarUrl: z.string().nullable(),
    status,
    mfaEnabled: z.boolean(),
    mfaMethod: z.enum(['totp', 'sms']).nullable(),
    phoneNumber: z.string().nullable(),
    phoneVerified: z.boolean(),
    isPlatformAdmin: z.boolean(),
    lastLoginAt: instant.nullable(),
    passwordChangedAt: instant.nullable(),
    createdAt: instant,
    updatedAt: instant,
    scope: z.enum(['system', 'partner', 'organization']),
    partnerId: idOf('partner').nullable(),
    orgId: idOf('organization').nullable(),
    roleId: idOf('role').nullable(),
    permissions: z.array(z.object({ resource: z.string(), action: z.string() })),
  })
  .meta({ id: 'Profile' })

const RoleChoice = z
  .object({
    id: idOf('role'),
    name: z.string(),
    description: z.string().nullable(),
    scope: z.enum(['system', 'partner', 'organization']),
    isSystem: z.boolean(),
  })
  .meta({ id: 'RoleChoice' })

export const UserChange = z.strictObject({ name: name.optional(), status: status.optional() })
export type UserChange = z.output<typeof UserChange>

export const AccessChange = z.strictObject({
  orgAccess: orgAccess.optional().describe('Of a partner user: organizations in reach'),
  orgIds: orgIds.optional().describe('Which organizations, with orgAccess selected'),
  siteIds: siteIds.nullable().optional().describe('Of an organization user: sites in reach; null is all'),
  deviceGroupIds: deviceGroupIds.nullable().optional().describe('Device groups in reach; null is all'),
})
export type AccessChange = z.output<typeof AccessChange>

const params = z.strictObject({ id: idOf('user') })
const query = z.strictObject(tenant)
const done = z.object({ success: z.literal(true) })
const writes = userAccess({ permission: 'users:write', wholePartner: true })
const writesInFiles = userAccess({ permission: 'users:write', wholePartner: true, workload: 'files' })

export const people = {
  me: endpoint({
    method: 'GET',
    path: '/users/me',
    summary: 'Show your own profile',
    tag,
    access: userAccess({ whileEnrolling: true }),
    reply: Profile,
  }),
  changeMe: endpoint({
    method: 'PATCH',
    path: '/users/me',
    summary: 'Change your own name and picture',
    tag,
    access: userAccess({ whileEnrolling: true }),
    body: z.strictObject({
      name: name.optional(),
      avatarUrl: avatarUrl.optional().describe('http or https address of a picture'),
    }),
    reply: Profile,
    audit: { action: 'user.profile.update', resource: 'user' },
    example: { name: 'Ada Lovelace', avatarUrl: 'https://example.com/ada.png' },
  }),
  roles: endpoint({
    method: 'GET',
    path: '/users/roles',
    summary: 'List the roles a user can be given',
    tag,
    access: userAccess({ permission: 'users:read', wholePartner: true }),
    query,
    reply: z.object({ data: z.array(RoleChoice) }),
    errors: ['org_access_denied', 'partner_mismatch'],
  }),
  list: endpoint({
    method: 'GET',
    path: '/users',
    summary: 'List users by name',
    tag,
    access: userAccess({ permission: 'users:read', wholePartner: true, workload: 'files' }),
    readQuery: true,
    query: z.strictObject({
      ...tenant,
      q: text(100)
        .optional()
        .meta({ flag: 'search', formerFlag: 'q' })
        .describe('Part of the name or e-mail'),
      idPrefix,
      status: status.optional(),
      ...pageQuery(),
    }),
    reply: pageOf(User),
    errors: ['org_access_denied', 'partner_mismatch'],
  }),
  show: endpoint({
    method: 'GET',
    path: '/users/:id',
    summary: 'Show a user and their memberships',
    tag,
    access: userAccess({ permission: 'users:read', wholePartner: true }),
    params,
    query,
    reply: UserDetails,
  }),
  change: endpoint({
    method: 'PATCH',
    path: '/users/:id',
    summary: 'Change the name or status of a user in the tenant; a disabled one is signed out at once',
    tag,
    access: writes,
    params,
    query,
    body: UserChange,
    reply: User,
    audit: { action: 'user.update', resource: 'user' },
    errors: ['last_administrator', 'conflict'],
    example: { name: 'Ada Lovelace' },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/users/:id',
    summary: 'Remove a user from the tenant, and end their sessions there; the account survives',
    tag,
    access: userAccess({ permission: 'users:delete', wholePartner: true, workload: 'files' }),
    params,
    query,
    reply: done,
    audit: { action: 'user.remove', resource: 'user' },
    errors: ['last_administrator'],
  }),
  assignRole: endpoint({
    method: 'POST',
    path: '/users/:id/role',
    idempotencyKey: 'honored',
    summary: 'Give a user another role',
    tag,
    access: writesInFiles,
    params,
    query,
    body: z.strictObject({ roleId: idOf('role').describe('The role') }),
    reply: done,
    audit: { action: 'user.role.assign', resource: 'user' },
    errors: ['last_administrator'],
    example: {},
  }),
  changeAccess: endpoint({
    method: 'PATCH',
    path: '/users/:id/access',
    summary: 'Change which organizations, sites and device groups a user reaches',
    tag,
    access: writesInFiles,
    params,
    query,
    body: AccessChange,
    reply: User,
    audit: { action: 'user.access.update', resource: 'user' },
    errors: ['last_administrator'],
    example: {},
  }),
  resetMfa: endpoint({
    method: 'POST',
    path: '/users/:id/mfa/reset',
    idempotencyKey: 'honored',
    summary: "Remove a user's second factors and sign them out",
    tag,
    access: userAccess({ permission: 'users:write', mfa: true, wholePartner: true }),
    params,
    reply: done,
    audit: { action: 'user.mfa.reset', resource: 'user' },
  }),
  signOut: endpoint({
    method: 'POST',
    path: '/users/:id/sign-out',
    idempotencyKey: 'honored',
    summary: 'End the sessions of a user in the tenants you administer',
    tag,
    access: writes,
    params,
    reply: done,
    audit: { action: 'user.sign_out', resource: 'user' },
  }),
  unlock: endpoint({
    method: 'POST',
    path: '/users/:id/unlock',
    idempotencyKey: 'honored',
    summary: 'Forget the wrong passwords that were tried for a user, who can then sign in from everywhere',
    tag,
    access: writes,
    params,
    reply: done,
    audit: { action: 'user.unlock', resource: 'user' },
  }),
}
