/** Permission pairs that protect routes. `*:*` grants everything. */
const permissionCatalog = {
  devices: ['read', 'write', 'delete', 'execute'],
  scripts: ['read', 'write', 'delete', 'execute'],
  alerts: ['read', 'write', 'acknowledge'],
  users: ['read', 'write', 'delete', 'invite'],
  organizations: ['read', 'write', 'delete'],
  sites: ['read', 'write', 'delete'],
  automations: ['read', 'write', 'delete'],
  remote: ['access'],
  audit: ['read', 'export'],
  config: ['read', 'apply'],
} as const

type Catalog = typeof permissionCatalog
export type Permission = { [R in keyof Catalog]: `${R}:${Catalog[R][number]}` }[keyof Catalog] | '*:*'

export const permissions: readonly Permission[] = Object.entries(permissionCatalog).flatMap(
  ([resource, actions]) => actions.map((action) => `${resource}:${action}` as Permission),
)

/** Vocabulary of the role builder; the permission catalog is the vocabulary of routes. */
export const roleBuilderCatalog = {
  resources: [
    'devices',
    'scripts',
    'alerts',
    'automations',
    'reports',
    'backup',
    'billing',
    'users',
    'settings',
    'organizations',
    'sites',
    'remote',
  ],
  actions: ['view', 'create', 'update', 'delete', 'execute'],
} as const

/** Actions of the role builder that have another name in the catalog. */
const aliases: Readonly<Record<string, string>> = { view: 'read', create: 'write', update: 'write' }

export type PermissionPair = { resource: string; action: string }

/** The permission of a pair, aliases included; undefined when there is none. */
export function permissionOf({ resource, action }: PermissionPair): Permission | undefined {
  const pair = `${resource}:${Object.hasOwn(aliases, action) ? aliases[action] : action}` as Permission
  return pair === '*:*' || permissions.includes(pair) ? pair : undefined
}

export function pairOf(permission: string): PermissionPair {
  const [resource = '', action = ''] = permission.split(':')
  return { resource, action }
}

/** Every valid name of a resource or an action. */
export const resourceNames: readonly string[] = [...Object.keys(permissionCatalog), '*']
export const actionNames: readonly string[] = [
  ...new Set([...Object.values(permissionCatalog).flat(), ...Object.keys(aliases), '*']),
]

export const resourceLabels: Readonly<Record<keyof Catalog, string>> = {
  devices: 'Devices',
  scripts: 'Scripts',
  alerts: 'Alerts',
  users: 'Users and roles',
  organizations: 'Organizations and their keys',
  sites: 'Sites',
  automations: 'Automations',
  remote: 'Remote sessions',
  audit: 'Audit log',
  config: 'Configuration',
}

export const actionLabels: Readonly<Record<Catalog[keyof Catalog][number], string>> = {
  read: 'See',
  write: 'Create and change',
  delete: 'Delete',
  execute: 'Run',
  acknowledge: 'Acknowledge',
  invite: 'Invite',
  access: 'Open',
  export: 'Export',
  apply: 'Apply',
}

/** What a permission allows, as text. */
export function describePermission(permission: Permission): string {
  if (permission === '*:*') return 'Everything'
  if (permission === 'devices:execute') return 'Run commands on devices'
  if (permission === 'users:invite') return 'Invite users'
  const { resource, action } = pairOf(permission)
  const label = resourceLabels[resource as keyof Catalog].toLowerCase()
  return `${actionLabels[action as keyof typeof actionLabels]} ${label}`
}

/** The permissions of `wanted` that `held` does not cover, sorted. */
export const missingPermissions = (held: ReadonlySet<string>, wanted: Iterable<string>): string[] =>
  [...wanted].filter((pair) => !hasPermission(held, pair as Permission)).sort()

/** True when `held` has the pair itself or a wildcard that covers it. */
export function hasPermission(held: ReadonlySet<string>, wanted: Permission): boolean {
  if (held.has(wanted) || held.has('*:*')) return true
  const [resource, action] = wanted.split(':')
  return held.has(`${resource}:*`) || held.has(`*:${action}`)
}
