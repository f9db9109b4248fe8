import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import type { Document } from './fixture.ts'
import { startWithHistory } from './history-fixture.ts'

const org = 'bakery'
const conditions = (value: string) => ({
  operator: 'AND' as const,
  conditions: [{ field: 'status', operator: 'equals' as const, value }],
})
const technician = { org, name: 'technician', permissions: ['sites:read'] }
const filters = [
  { org, name: 'Online', conditions: conditions('online') },
  { org, name: 'Offline', conditions: conditions('offline') },
]
const group = { org, name: 'Tills', type: 'dynamic' }
const ada = { org, email: 'ada@example.com', name: 'Ada' }

const before: Document = {
  roles: [technician, { org, name: 'Night', parent: 'technician', permissions: [] }],
  filters,
  deviceGroups: [{ ...group, filter: 'Online' }],
  memberships: [{ ...ada, role: 'technician' }],
}
const changes: Record<string, Document> = {
  'that it changed': {
    roles: [technician, { org, name: 'Night', parent: null, permissions: [] }],
    filters,
    deviceGroups: [{ ...group, filter: 'Offline' }],
    memberships: [{ ...ada, role: 'Org Viewer' }],
  },
  'that it deleted': { roles: [technician], filters, deviceGroups: [], memberships: [] },
}

inTurn((open) => {
  const start = async (change: Document) => {
    const { acme, world } = await startWithHistory(open)
    const orgId = world.orgs.bakery.id
    await acme.apply(before)
    const { applyId } = await acme.apply(change, { prune: true, pruneLimit: 9 })
    const { client } = acme
    const all = async () => {
      const query = { orgId }
      return {
        roles: (await client.call(api.roles.list, { query })).data,
        filters: (await client.call(api.filters.list, { query })).data,
        groups: (await client.call(api.deviceGroups.list, { query })).data,
        people: (await client.call(api.users.list, { query })).data,
      }
    }
    const named = <T extends { name: string }>(list: readonly T[], name: string) =>
      list.find((one) => one.name === name)!
    const found = await all()
    const role = named(found.roles, 'technician')
    const filter = named(found.filters, 'Online')
    /** Others, of the names of those that the apply knew. */
    const replace = async () => {
      await client.call(api.roles.create, {
        body: { orgId, name: 'technician', permissions: [{ resource: 'devices', action: 'execute' }] },
      })
      await client.call(api.filters.create, {
        body: { orgId, name: 'Online', conditions: conditions('offline') },
      })
    }
    const referred = async () => {
      const { roles, groups, people } = await all()
      return {
        parent: named(roles, 'Night').parentRoleId,
        filter: named(groups, 'Tills').filterId,
        role: people.find(({ email }) => email === ada.email)!.roleId,
      }
    }
    return { acme, client, applyId, role, filter, replace, referred }
  }

  describe.each(Object.entries(changes))('a rollback of an apply, for each object %s,', (_, change) => {
    it('refers to what it referred to, also under another name', async () => {
      const { acme, client, applyId, role, filter, replace, referred } = await start(change)
      await client.call(api.roles.update, { params: { id: role.id }, body: { name: 'crew' } })
      await client.call(api.filters.update, { params: { id: filter.id }, body: { name: 'Up' } })
      await replace()
      await acme.rollBack(applyId)
      expect(await referred()).toEqual({ parent: role.id, filter: filter.id, role: role.id })
    })

    it('is refused when that is deleted, whatever has its name', async () => {
      const { acme, client, applyId, role, filter, replace } = await start(change)
      await client.call(api.roles.remove, { params: { id: role.id } })
      await client.call(api.filters.remove, { params: { id: filter.id } })
      await replace()
      for (const what of [
        'roles "Night" of bakery: its parent "technician" is deleted',
        'deviceGroups "Tills" of bakery: its filter "Online" is deleted',
        'memberships "ada@example.com" of bakery: its role "technician" is deleted',
      ])
        await expect(acme.planBack(applyId)).rejects.toMatchObject({
          code: 'conflict',
          message: expect.stringContaining(what),
        })
    })
  })

  it('a rollback changes the object that the apply changed, though another has taken its former name', async () => {
    const { acme, bakery, world } = await startWithHistory(open)
    const site = (name: string, renamedFrom?: string) => ({
      org,
      name,
      timezone: renamedFrom === undefined ? 'UTC' : 'Europe/Paris',
      ...(renamedFrom !== undefined && { renamedFrom }),
    })
    await acme.apply({ sites: [site('Store')] })
    const { applyId } = await acme.apply({ sites: [site('Shop', 'Store')] })
    const body = { orgId: world.orgs.bakery.id, name: 'Store' }
    const other = await bakery.client.call(api.sites.create, { body })
    await expect(acme.planBack(applyId)).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('there is another "Store" among the sites'),
    })
    await bakery.client.call(api.sites.remove, { params: { id: other.id } })
    expect((await acme.rollBack(applyId)).changes).toMatchObject([
      { action: 'update', name: 'Store', renamedFrom: 'Shop', after: { timezone: 'UTC' } },
    ])
  })
})
