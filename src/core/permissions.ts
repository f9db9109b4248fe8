/** Permission pairs that protect routes (spec, "Role and permission"). `*:*` grants everything. */
export const catalog = {
  devices: ['read', 'write', 'delete', 'execute'],
  scripts: ['read', 'write', 'delete', 'execute'],
  alerts: ['read', 'write', 'acknowledge'],
  users: ['read', 'write', 'delete', 'invite'],
  organizations: ['read', 'write', 'delete'],
  sites: ['read', 'write', 'delete'],
  automations: ['read', 'write', 'delete'],
  remote: ['access'],
  audit: ['read', 'export'],
} as const

type Catalog = typeof catalog
export type Permission = { [R in keyof Catalog]: `${R}:${Catalog[R][number]}` }[keyof Catalog] | '*:*'

export const permissions: readonly Permission[] = Object.entries(catalog).flatMap(([resource, actions]) =>
  actions.map((action) => `${resource}:${action}` as Permission),
)

/** True when `held` has the pair itself or a wildcard that covers it. */
export function holds(held: ReadonlySet<string>, wanted: Permission): boolean {
  if (held.has(wanted) || held.has('*:*')) return true
  const [resource, action] = wanted.split(':')
  return held.has(`${resource}:*`) || held.has(`*:${action}`)
}
