import { permissions as every } from '../core/permissions.ts'
import type { ScopeKind } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'

type BuiltIn = {
  id: string
  name: string
  scope: ScopeKind
  description: string
  permissions: readonly string[]
  forceMfa?: boolean
}

const of = (resource: string) => every.filter((pair) => pair.startsWith(`${resource}:`))
const read = (...resources: string[]) => resources.map((resource) => `${resource}:read`)
const builtIn = (n: number) => `00000000-0000-7000-8000-${String(n).padStart(12, '0')}`

/** The role of a partner's first administrator; it requires a second factor. */
export const partnerAdmin = builtIn(1)

/** Built-in roles for every partner and organization; no user can change them. */
export const builtInRoles: readonly BuiltIn[] = [
  {
    id: partnerAdmin,
    name: 'Partner Admin',
    scope: 'partner',
    description: 'Everything in the partner and its organizations',
    permissions: ['*:*'],
    forceMfa: true,
  },
  {
    id: builtIn(2),
    name: 'Partner Technician',
    scope: 'partner',
    description: 'Works on devices, scripts and alerts',
    permissions: [
      ...read('devices', 'scripts', 'alerts', 'sites', 'organizations'),
      'devices:execute',
      'scripts:execute',
      'alerts:acknowledge',
    ],
  },
  {
    id: builtIn(3),
    name: 'Partner Viewer',
    scope: 'partner',
    description: 'Looks at devices, scripts and alerts',
    permissions: read('devices', 'scripts', 'alerts', 'sites', 'organizations'),
  },
  {
    id: builtIn(4),
    name: 'Org Admin',
    scope: 'organization',
    description: 'Everything in the organization',
    permissions: [
      ...['devices', 'scripts', 'alerts', 'users', 'sites', 'remote', 'audit', 'config'].flatMap(of),
      'organizations:read',
      'organizations:write',
    ],
  },
  {
    id: builtIn(5),
    name: 'Org Technician',
    scope: 'organization',
    description: 'Works on devices, scripts and alerts of the organization',
    permissions: [
      ...read('devices', 'scripts', 'alerts', 'sites'),
      'devices:write',
      'devices:execute',
      'scripts:execute',
      'alerts:acknowledge',
      'remote:access',
    ],
  },
  {
    id: builtIn(6),
    name: 'Org Viewer',
    scope: 'organization',
    description: 'Looks at devices, scripts and alerts of the organization',
    permissions: read('devices', 'scripts', 'alerts', 'sites'),
  },
  {
    id: builtIn(7),
    name: 'Auditor',
    scope: 'organization',
    description: 'Reads, exports and verifies the audit log',
    permissions: of('audit'),
  },
  {
    id: builtIn(8),
    name: 'Auditor',
    scope: 'partner',
    description: 'Reads, exports and verifies the audit logs',
    permissions: of('audit'),
  },
]

/**
 * Adds the built-in roles that are missing, and permissions that a release has added to one. Several processes may do so
 * at once.
 */
export async function seedRoles(db: Db, now: Instant): Promise<void> {
  const present = await db.selectFrom('roles').select('id').where('is_system', '=', 1).execute()
  const presentIds = new Set(present.map(({ id }) => id))
  const roles = builtInRoles
    .filter(({ id }) => !presentIds.has(id))
    .map(({ id, scope, name, description, forceMfa }) => ({
      id,
      partner_id: null,
      org_id: null,
      parent_role_id: null,
      scope,
      name,
      description,
      is_system: 1,
      force_mfa: forceMfa ? 1 : 0,
      created_at: now,
      updated_at: now,
    }))
  if (roles.length > 0) {
    await db
      .insertInto('roles')
      .values(roles)
      .onConflict((c) => c.doNothing())
      .execute()
  }
  const granted = await db
    .selectFrom('role_permissions')
    .select(['role_id', 'permission'])
    .where(
      'role_id',
      'in',
      builtInRoles.map(({ id }) => id),
    )
    .execute()
  const pairs = new Set(granted.map(({ role_id, permission }) => `${role_id} ${permission}`))
  const missing = builtInRoles.flatMap(({ id, permissions }) =>
    permissions
      .filter((permission) => !pairs.has(`${id} ${permission}`))
      .map((permission) => ({ role_id: id, permission })),
  )
  if (missing.length === 0) return
  await db
    .insertInto('role_permissions')
    .values(missing)
    .onConflict((c) => c.doNothing())
    .execute()
}
