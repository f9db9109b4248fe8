import { api } from '../../src/api.ts'
import type { Open } from '../databases.ts'
import { type ServiceOptions, startService, type TestService } from '../harness.ts'
import { buildWorld } from '../world.ts'

export const machine = {
  osType: 'linux',
  osVersion: 'Debian 12',
  architecture: 'x64',
  agentVersion: '0.1.0',
} as const

/** The world, with a function that enrolls machines into its bakery. */
export async function begin(open: Open, options: ServiceOptions = {}) {
  const service = await startService(open, options)
  const world = await buildWorld(service)
  const { bakery } = world.orgs
  const client = service.client(world.tokens.bakery)
  const enroll = await enroller(service, world.tokens.bakery)
  const show = (id: string) => client.call(api.devices.show, { params: { id } })
  return { service, ...world, bakery, client, enroll, show }
}

/** Enrolls machines into the organization of an administrator, optionally into a site. */
export async function enroller(service: TestService, token: string) {
  const client = service.client(token)
  const keys = new Map<string | undefined, string>()
  return async (hostname: string, siteId?: string) => {
    let key = keys.get(siteId)
    if (key === undefined) {
      const body = { name: `for ${siteId}`, maxUsage: 1000, ...(siteId !== undefined && { siteId }) }
      key = (await client.call(api.enrollmentKeys.create, { body })).key
      keys.set(siteId, key)
    }
    return service.client().call(api.agents.enroll, { body: { enrollmentKey: key, hostname, ...machine } })
  }
}
