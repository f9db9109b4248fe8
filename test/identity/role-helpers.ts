import { expect } from 'vitest'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { builtInRoles } from '../../src/identity/seeds.ts'
import type { Open } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addUser, buildWorld, tokenFor } from '../world.ts'

export const failing = (status: number, error: string | RegExp, more: object = {}) =>
  expect.objectContaining({
    status,
    message: typeof error === 'string' ? error : expect.stringMatching(error),
    ...more,
  })

export const builtIn = (name: string, scope = 'organization') =>
  builtInRoles.find((one) => one.name === name && one.scope === scope)!.id

/** `devices:read` in the format of the API. */
export const pairs = (...names: string[]) =>
  names.map((name) => ({ resource: name.split(':')[0]!, action: name.split(':')[1]! }))
export const named = (list: { resource: string; action: string }[]) =>
  list.map(({ resource, action }) => `${resource}:${action}`)

/** Adds a user with a second factor and a role in an organization. */
export async function join(service: TestService, name: string, orgId: string, roleId: string) {
  const userId = await addUser(service, name)
  const now = new Date().toISOString()
  await service.storage.write((tx) => joinOrganization(tx, { orgId, userId, roleId, siteIds: null }, now))
  return { userId, token: await tokenFor(service, userId, { kind: 'organization', orgId }) }
}

/** The same for a partner, with access to all its organizations. */
export async function joinAsPartner(service: TestService, name: string, partnerId: string, roleId: string) {
  const userId = await addUser(service, name)
  const now = new Date().toISOString()
  await service.storage.write((tx) => joinPartner(tx, { partnerId, userId, roleId, orgs: 'all' }, now))
  return { userId, token: await tokenFor(service, userId, { kind: 'partner', partnerId }) }
}

/** The world with clients for the administrators of the system, of acme and of the bakery. */
export async function begin(open: Open) {
  const service = await startService(open)
  const world = await buildWorld(service)
  const { system, acme, bakery } = world.tokens
  const clients = {
    system: service.client(system),
    acme: service.client(acme),
    admin: service.client(bakery),
  }
  return { service, ...world, ...clients }
}

export const create = (client: Client, name: string, permissions: string[] = [], more: object = {}) =>
  client.call(api.roles.create, { body: { name, permissions: pairs(...permissions), ...more } })

export const update = (client: Client, id: string, body: object) =>
  client.call(api.roles.update, { params: { id }, body })
