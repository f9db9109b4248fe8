import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { addOrgUser, buildWorld } from '../world.ts'
import { addDevice } from './fleet.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const admin = service.client(world.tokens.bakery)
    const site = await admin.call(api.sites.create, { body: { orgId: bakery.id, name: 'Depot' } })
    const depotPc = await addDevice(service, world, bakery, 'depot-pc', { siteId: site.id })
    const create = async (name: string, deviceIds: string[], more: Record<string, unknown> = {}) => {
      const { id } = await admin.call(api.deviceGroups.create, { body: { name, ...more } })
      if (deviceIds.length > 0)
        await admin.call(api.deviceGroups.add, { params: { id }, body: { deviceIds } })
      return id
    }
    return { service, world, bakery, admin, site, depotPc, create }
  }

  describe('a member restricted to device groups', () => {
    it('sees these groups, and their devices that the member may see', async () => {
      const { service, bakery, site, depotPc, create } = await start()
      const mine = await create('mine', [bakery.deviceId, depotPc])
      const other = await create('other', [bakery.deviceId])
      const client = service.client(
        await addOrgUser(service, 'both', bakery.id, { groupIds: [mine], siteIds: [site.id] }),
      )
      const list = await client.call(api.deviceGroups.list)
      expect(list.data).toMatchObject([{ id: mine, deviceCount: 1 }])
      expect(list.pagination.total).toBe(1)
      const params = { id: mine }
      const { data } = await client.call(api.deviceGroups.devices, { params })
      expect(data.map(({ hostname }) => hostname)).toEqual(['depot-pc'])
      const log = await client.call(api.deviceGroups.log, { params })
      expect(log.data.map(({ hostname }) => hostname)).toEqual(['depot-pc'])
      for (const id of [other, bakery.groupId]) {
        for (const entry of [api.deviceGroups.show, api.deviceGroups.devices, api.deviceGroups.log]) {
          await expect(client.request(entry, { params: { id } })).rejects.toEqual(refused(404, 'not_found'))
        }
      }
    })

    it('cannot change a group, and so cannot widen the restriction', async () => {
      const { service, bakery, admin, depotPc, create } = await start()
      const mine = await create('mine', [bakery.deviceId])
      const found = await create('found', [], { type: 'dynamic', filterId: bakery.filterId })
      const token = await addOrgUser(service, 'narrow', bakery.id, { groupIds: [mine, found] })
      const client = service.client(token)
      const params = { id: mine }
      const attempts = [
        client.call(api.deviceGroups.add, { params, body: { deviceIds: [depotPc] } }),
        client.call(api.deviceGroups.add, { params, body: { deviceIds: [bakery.deviceId] } }),
        client.call(api.deviceGroups.take, { params, body: { deviceIds: [bakery.deviceId] } }),
        client.call(api.deviceGroups.update, { params, body: { name: 'ours' } }),
        client.call(api.deviceGroups.remove, { params }),
        client.call(api.deviceGroups.create, { body: { name: 'new' } }),
        client.call(api.deviceGroups.pin, { params: { id: found, deviceId: bakery.deviceId } }),
        client.call(api.deviceGroups.unpin, { params: { id: found, deviceId: bakery.deviceId } }),
        // The filter decides which devices are in the group they are restricted to.
        client.call(api.filters.update, {
          params: { id: bakery.filterId },
          body: {
            conditions: { operator: 'AND', conditions: [{ field: 'hostname', operator: 'isNotNull' }] },
          },
        }),
      ]
      for (const one of await Promise.allSettled(attempts)) {
        expect(one).toMatchObject({ status: 'rejected', reason: { status: 403, code: 'site_access_denied' } })
      }
      expect((await client.call(api.devices.list)).data.map(({ id }) => id)).toEqual([bakery.deviceId])
      expect((await admin.call(api.filters.show, { params: { id: bakery.filterId } })).conditions).toEqual(
        api.filters.create.example.conditions,
      )
    })
  })

  describe('a member restricted to sites', () => {
    it('sees the groups of these sites', async () => {
      const { service, bakery, site, depotPc, create } = await start()
      const here = await create('here', [depotPc], { siteId: site.id })
      await create('there', [bakery.deviceId], { siteId: bakery.siteId })
      await create('everywhere', [bakery.deviceId, depotPc])
      const token = await addOrgUser(service, 'narrow', bakery.id, { siteIds: [site.id] })
      const { data } = await service.client(token).call(api.deviceGroups.list)
      expect(data.map(({ id }) => id)).toEqual([here])
    })

    it('creates and changes groups of these sites only', async () => {
      const { service, bakery, site, depotPc, create } = await start()
      const everywhere = await create('everywhere', [bakery.deviceId])
      const token = await addOrgUser(service, 'narrow', bakery.id, { siteIds: [site.id] })
      const client = service.client(token)
      const make = (more: Record<string, unknown>) =>
        client.call(api.deviceGroups.create, { body: { name: 'new', ...more } })
      await expect(make({})).rejects.toEqual(refused(403, 'site_access_denied'))
      await expect(make({ siteId: bakery.siteId })).rejects.toEqual(refused(403, 'site_access_denied'))
      const { id } = await make({ siteId: site.id })
      const params = { id }
      const foreign = client.call(api.deviceGroups.add, { params, body: { deviceIds: [bakery.deviceId] } })
      await expect(foreign).rejects.toEqual(refused(404, 'not_found'))
      await client.call(api.deviceGroups.add, { params, body: { deviceIds: [depotPc] } })
      const under = client.call(api.deviceGroups.update, { params, body: { parentId: everywhere } })
      await expect(under).rejects.toMatchObject({ status: 400, details: [{ path: 'body.parentId' }] })
      const rename = client.call(api.deviceGroups.update, {
        params: { id: everywhere },
        body: { name: 'mine' },
      })
      await expect(rename).rejects.toEqual(refused(404, 'not_found'))
      await client.call(api.deviceGroups.remove, { params })
    })

    it('creates dynamic groups that match devices of these sites only', async () => {
      const { service, bakery, site, depotPc } = await start()
      const client = service.client(await addOrgUser(service, 'narrow', bakery.id, { siteIds: [site.id] }))
      const all = { operator: 'AND', conditions: [{ field: 'hostname', operator: 'isNotNull' }] } as const
      const filter = await client.call(api.filters.create, { body: { name: 'all', conditions: all } })
      const { id } = await client.call(api.deviceGroups.create, {
        body: { name: 'all', siteId: site.id, type: 'dynamic', filterId: filter.id },
      })
      const rows = await service.storage.read
        .selectFrom('device_group_devices')
        .select('device_id')
        .where('group_id', '=', id)
        .execute()
      expect(rows).toEqual([{ device_id: depotPc }])
    })
  })
})
