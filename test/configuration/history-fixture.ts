import { api } from '../../src/api.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

export const script = { osTypes: ['linux' as const], language: 'bash' as const, content: 'true\n' }
const online = {
  operator: 'AND',
  conditions: [{ field: 'status', operator: 'equals', value: 'online' }],
}

export const hook = {
  org: 'bakery',
  name: 'Tickets',
  url: 'https://hooks.example.com/in?key=k-e-y',
  secret: 'one',
  events: ['device.enrolled', 'alert.triggered'],
}
export const policy = {
  org: 'bakery',
  name: 'CI',
  issuer: 'https://ci.example.com',
  claims: { sub: 'x' },
  permissions: ['devices:read'],
}

export const first: Document = {
  organizations: [{ slug: 'florist', name: 'Florist', settings: { color: 'green', size: { rooms: 2 } } }],
  sites: [
    { org: 'florist', name: 'Store', timezone: 'Europe/Paris' },
    { org: 'bakery', name: 'Annex' },
  ],
  roles: [{ org: 'florist', name: 'Night', parent: 'Org Viewer', permissions: ['devices:execute'] }],
  filters: [{ org: 'florist', name: 'Online', conditions: online }],
  deviceGroups: [
    { org: 'florist', name: 'Tills', site: 'Store' },
    { org: 'florist', name: 'Online', type: 'dynamic', filter: 'Online' },
  ],
  scripts: [{ name: 'Clean', ...script }],
}
/** Changes, renames, makes and deletes something of each. */
export const second: Document = {
  organizations: [
    {
      slug: 'flowers',
      renamedFrom: 'florist',
      name: 'Flowers',
      settings: { size: { doors: 1 }, shade: 'dark' },
    },
  ],
  sites: [
    { org: 'flowers', name: 'Shop', renamedFrom: 'Store', timezone: 'UTC' },
    { org: 'flowers', name: 'Depot' },
  ],
  roles: [
    { org: 'flowers', name: 'Night', parent: null, permissions: ['sites:read'] },
    { org: 'flowers', name: 'Below', parent: 'Night', permissions: [] },
  ],
  filters: [{ org: 'flowers', name: 'Online', conditions: { ...online, operator: 'OR' } }],
  deviceGroups: [{ org: 'flowers', name: 'Online', type: 'dynamic', filter: 'Online' }],
  scripts: [{ name: 'Clean', ...script, content: 'false\n' }],
}
export type Pruning = { prune: boolean; pruneLimit?: number }
/** Deletes whatever an apply does not have any more. */
export const pruned: Pruning = { prune: true, pruneLimit: 9 }

/** A service whose callers apply files, list what they applied and roll it back. */
export async function startWithHistory(open: Parameters<typeof startService>[0]) {
  const service = await startService(open)
  const world = await buildWorld(service)
  const by = (token: string, named?: string | { partnerId: string }) => {
    const one = configurationOf(service)(token, named)
    const query = typeof named === 'string' ? { orgId: named } : (named ?? {})
    const { configurationApplies: applies } = api
    const history = async () => (await one.client.call(applies.list, { query })).data
    const planBack = (id: string, pruning: Pruning = pruned) =>
      one.client.call(applies.plan, { params: { id }, body: pruning })
    const rollBack = async (id: string, version?: string, pruning: Pruning = pruned) => {
      const body = { ...pruning, version: version ?? (await planBack(id, pruning)).version }
      return one.client.call(applies.rollback, { params: { id }, body })
    }
    return { ...one, history, planBack, rollBack }
  }
  return { service, world, by, acme: by(world.tokens.acme), bakery: by(world.tokens.bakery) }
}

export const lines = (changes: readonly { action: string; section: string; name: string }[]) =>
  changes.map(({ action, section, name }) => `${action} ${section} ${name}`)
