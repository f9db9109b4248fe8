import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, buildWorld } from '../world.ts'
import { addDevice } from './fleet.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })
const fault = (path: string) => ({ status: 400, details: [expect.objectContaining({ path })] })

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const { bakery, garage } = world.orgs
    const admin = service.client(world.tokens.bakery)
    const create = (name: string, more: Record<string, unknown> = {}) =>
      admin.call(api.deviceGroups.create, { body: { name, ...more } })
    const add = (id: string, ...deviceIds: string[]) =>
      admin.call(api.deviceGroups.add, { params: { id }, body: { deviceIds } })
    const take = (id: string, ...deviceIds: string[]) =>
      admin.call(api.deviceGroups.take, { params: { id }, body: { deviceIds } })
    const members = async (id: string) =>
      (await admin.call(api.deviceGroups.devices, { params: { id } })).data.map(({ hostname }) => hostname)
    return { clock, service, world, bakery, garage, admin, create, add, take, members }
  }

  describe('a device group', () => {
    it('is created in an organization, listed by name, renamed and deleted', async () => {
      const { admin, bakery, create } = await start()
      const first = await create('Reception')
      expect(first).toMatchObject({
        orgId: bakery.id,
        siteId: null,
        type: 'static',
        filterId: null,
        parentId: null,
        deviceCount: 0,
        evaluatedAt: null,
      })
      const second = await create('Back office', { siteId: bakery.siteId, parentId: first.id })
      const names = async (query = {}) =>
        (await admin.call(api.deviceGroups.list, { query })).data.map(({ name }) => name)
      expect(await names()).toEqual(['Back office', 'Reception', 'bakery group'])
      expect(await names({ siteId: bakery.siteId })).toEqual(['Back office'])
      expect(await names({ parentId: first.id })).toEqual(['Back office'])
      expect(await names({ search: 'OFFICE' })).toEqual(['Back office'])
      expect(await names({ type: 'dynamic' })).toEqual([])
      expect(await names({ limit: '1', page: '2' })).toEqual(['Reception'])

      const params = { id: second.id }
      const after = await admin.call(api.deviceGroups.update, {
        params,
        body: { name: 'Kitchen', parentId: null },
      })
      expect(after).toMatchObject({ name: 'Kitchen', parentId: null, siteId: bakery.siteId })
      expect((await admin.call(api.deviceGroups.remove, { params })).success).toBe(true)
      await expect(admin.call(api.deviceGroups.show, { params })).rejects.toEqual(refused(404, 'not_found'))
    })

    it('accepts only sites, parents, filters and devices of its organization', async () => {
      const { service, world, bakery, garage, create } = await start()
      const foreign = [garage, world.orgs.harbor]
      for (const org of foreign) {
        await expect(create('x', { siteId: org.siteId })).rejects.toMatchObject(fault('body.siteId'))
        await expect(create('x', { parentId: org.groupId })).rejects.toMatchObject(fault('body.parentId'))
        const dynamic = { type: 'dynamic', filterId: org.filterId }
        await expect(create('x', dynamic)).rejects.toEqual(refused(404, 'not_found'))
      }
      // Also for callers who see both organizations.
      const acme = service.client(world.tokens.acme)
      const elsewhere = (more: Record<string, unknown>) =>
        acme.call(api.deviceGroups.create, { body: { orgId: bakery.id, name: 'x', ...more } })
      await expect(elsewhere({ siteId: garage.siteId })).rejects.toMatchObject(fault('body.siteId'))
      await expect(elsewhere({ parentId: garage.groupId })).rejects.toMatchObject(fault('body.parentId'))
      await expect(elsewhere({ type: 'dynamic', filterId: garage.filterId })).rejects.toMatchObject(
        fault('body.filterId'),
      )
      const add = acme.call(api.deviceGroups.add, {
        params: { id: bakery.groupId },
        body: { deviceIds: [garage.deviceId] },
      })
      await expect(add).rejects.toEqual(refused(404, 'not_found'))
      const nowhere = acme.call(api.deviceGroups.create, { body: { name: 'x' } })
      await expect(nowhere).rejects.toMatchObject(fault('body.orgId'))
    })

    it('is never its own ancestor, even with two concurrent changes', async () => {
      const { admin, create } = await start()
      const [a, b, c] = [await create('a'), await create('b'), await create('c')]
      const put = (id: string, parentId: string) =>
        admin.call(api.deviceGroups.update, { params: { id }, body: { parentId } })
      await expect(put(a.id, a.id)).rejects.toMatchObject(fault('body.parentId'))
      await put(b.id, a.id)
      await put(c.id, b.id)
      await expect(put(a.id, c.id)).rejects.toMatchObject(fault('body.parentId'))
      const [d, e] = [await create('d'), await create('e')]
      const results = await Promise.allSettled([put(d.id, e.id), put(e.id, d.id)])
      expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    })

    it('cannot be deleted while a member is restricted to it or it has a child group', async () => {
      const { service, admin, bakery, create } = await start()
      const group = await create('Reception')
      const child = await create('Desk', { parentId: group.id })
      const token = await addOrgUser(service, 'limited', bakery.id, { groupIds: [group.id] })
      const params = { id: group.id }
      await expect(admin.call(api.deviceGroups.remove, { params })).rejects.toMatchObject({
        status: 409,
        message: 'The group is in use: 1 member is limited to it, 1 group is under it',
        details: { memberships: 1, groups: 1, filters: 0 },
      })
      await admin.call(api.deviceGroups.remove, { params: { id: child.id } })
      await expect(admin.call(api.deviceGroups.remove, { params })).rejects.toMatchObject({
        details: { memberships: 1, groups: 0 },
      })
      expect((await service.client(token).call(api.devices.list)).data).toEqual([])
    })

    it('cannot be deleted while a saved filter has a condition on it', async () => {
      const { admin, bakery, create } = await start()
      const { id } = await create('Reception')
      const filter = await admin.call(api.filters.create, {
        body: {
          orgId: bakery.id,
          name: 'Silent at the reception',
          conditions: {
            operator: 'AND',
            conditions: [
              {
                operator: 'OR',
                conditions: [{ field: 'groupId', operator: 'in', value: [newId(), id] }],
              },
            ],
          },
        },
      })
      await expect(admin.call(api.deviceGroups.remove, { params: { id } })).rejects.toMatchObject({
        status: 409,
        message: 'The group is in use: 1 saved filter has a condition on it',
        details: { memberships: 0, groups: 0, filters: 1 },
      })
      await admin.call(api.filters.remove, { params: { id: filter.id } })
      await admin.call(api.deviceGroups.remove, { params: { id } })
    })
  })

  describe('a static group', () => {
    it('has the devices that were added and not removed', async () => {
      const { service, world, clock, bakery, admin, create, add, take, members } = await start()
      const second = await addDevice(service, world, bakery, 'a-second')
      const { id } = await create('Reception')
      expect(await add(id, bakery.deviceId, second)).toEqual({
        added: 2,
        deviceCount: 2,
        message: 'Added 2 devices to Reception',
      })
      clock.forward(60)
      expect(await add(id, second)).toMatchObject({ added: 0, deviceCount: 2 })
      expect(await members(id)).toEqual(['a-second', 'bakery-pc'])
      clock.forward(60)
      expect(await take(id, second)).toMatchObject({ removed: 1, deviceCount: 1 })
      expect(await take(id, second)).toMatchObject({ removed: 0, deviceCount: 1 })
      const log = await admin.call(api.deviceGroups.log, { params: { id } })
      const lines = log.data.map((one) => [one.hostname, one.action, one.reason].join(' '))
      expect(lines[0]).toBe('a-second removed manual')
      expect(lines.slice(1).sort()).toEqual(['a-second added manual', 'bakery-pc added manual'])
      expect(log.pagination).toMatchObject({ total: 3, nextCursor: null })
      expect((await admin.call(api.devices.list)).data).toHaveLength(2)
    })

    it('is read page by page by cursor', async () => {
      const { service, world, bakery, admin, create, add } = await start()
      const { id } = await create('Many')
      const ids: string[] = []
      for (const name of ['d', 'b', 'a', 'c', 'b']) ids.push(await addDevice(service, world, bakery, name))
      await add(id, ...ids)
      const names: string[] = []
      let cursor: string | undefined
      for (let turn = 0; turn < 4; turn++) {
        const query = { limit: '2', ...(cursor !== undefined && { cursor }) }
        const page = await admin.call(api.deviceGroups.devices, { params: { id }, query })
        names.push(...page.data.map(({ hostname }) => hostname))
        cursor = page.pagination.nextCursor ?? undefined
        if (cursor === undefined) break
      }
      expect(names).toEqual(['a', 'b', 'b', 'c', 'd'])
    })

    it('does not reveal whether a device exists elsewhere, and changes all or nothing', async () => {
      const { world, bakery, garage, create, add, take, members } = await start()
      const { id } = await create('Reception')
      const problem = async (work: Promise<unknown>) => {
        const { status, code, message, details } = await work.then(
          () => ({}) as never,
          (error: unknown) => error as Record<string, unknown>,
        )
        return { status, code, message, details }
      }
      const unknown = await problem(add(id, bakery.deviceId, newId()))
      expect(unknown).toEqual({
        status: 404,
        code: 'not_found',
        message: 'Device not found',
        details: [{ path: 'body.deviceIds.1', message: 'Device not found' }],
      })
      for (const foreign of [garage.deviceId, world.orgs.harbor.deviceId]) {
        expect(await problem(add(id, bakery.deviceId, foreign))).toEqual(unknown)
        expect(await problem(take(id, bakery.deviceId, foreign))).toEqual(unknown)
      }
      expect(await members(id)).toEqual([])
    })

    it('of a site accepts only devices of that site', async () => {
      const { service, world, bakery, create, add, members } = await start()
      const loose = await addDevice(service, world, bakery, 'loose')
      const { id } = await create('Site machines', { siteId: bakery.siteId })
      await expect(add(id, bakery.deviceId, loose)).rejects.toMatchObject(fault('body.deviceIds'))
      await add(id, bakery.deviceId)
      expect(await members(id)).toEqual(['bakery-pc'])
    })

    it('of a site loses a device that moves to another site', async () => {
      const { bakery, admin, create, add, members } = await start()
      const ofSite = await create('Site machines', { siteId: bakery.siteId })
      const ofAll = await create('All machines')
      await add(ofAll.id, bakery.deviceId)
      const other = await admin.call(api.sites.create, { body: { orgId: bakery.id, name: 'Depot' } })
      const move = (siteId: string | null) =>
        admin.call(api.devices.update, { params: { id: bakery.deviceId }, body: { siteId } })
      for (const siteId of [other.id, null]) {
        await move(bakery.siteId)
        await add(ofSite.id, bakery.deviceId)
        await admin.call(api.devices.update, {
          params: { id: bakery.deviceId },
          body: { displayName: `On its way to ${siteId}` },
        })
        expect(await members(ofSite.id)).toEqual(['bakery-pc'])
        await move(siteId)
        expect(await members(ofSite.id)).toEqual([])
      }
      expect(await members(ofAll.id)).toEqual(['bakery-pc'])
    })

    it('accepts at most 1000 devices at once, each once', async () => {
      const { bakery, create, add } = await start()
      const { id } = await create('Reception')
      const many = Array.from({ length: 1001 }, () => newId())
      await expect(add(id, ...many)).rejects.toMatchObject(fault('body.deviceIds'))
      await expect(add(id)).rejects.toMatchObject(fault('body.deviceIds'))
      await expect(add(id, ...many.slice(1))).rejects.toEqual(refused(404, 'not_found'))
      expect(await add(id, bakery.deviceId, bakery.deviceId)).toMatchObject({ added: 1 })
    })

    it('has neither a filter nor pins', async () => {
      const { admin, bakery, create } = await start()
      await expect(create('x', { filterId: bakery.filterId })).rejects.toMatchObject(fault('body.filterId'))
      const { id } = await create('Reception')
      const change = admin.call(api.deviceGroups.update, {
        params: { id },
        body: { filterId: bakery.filterId },
      })
      await expect(change).rejects.toMatchObject(fault('body.filterId'))
      const params = { id, deviceId: bakery.deviceId }
      await expect(admin.call(api.deviceGroups.pin, { params })).rejects.toEqual(refused(409, 'conflict'))
      await expect(admin.call(api.deviceGroups.unpin, { params })).rejects.toEqual(refused(409, 'conflict'))
    })

    it('leaves added and removed devices in the audit log', async () => {
      const { service, bakery, create, add, take } = await start()
      const { id } = await create('Reception')
      const news = await newEntries(service)
      await add(id, bakery.deviceId)
      await take(id, bakery.deviceId)
      expect(await news()).toMatchObject([
        {
          action: 'device_group.devices.add',
          resourceId: id,
          resourceName: 'Reception',
          details: { after: { added: [bakery.deviceId] } },
        },
        { action: 'device_group.devices.remove', details: { before: { removed: [bakery.deviceId] } } },
      ])
    })
  })
})
