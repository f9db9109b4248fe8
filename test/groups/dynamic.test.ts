import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { refreshDueGroups } from '../../src/groups/jobs.ts'
import { addMembers, removeMembers, sweepChanges } from '../../src/groups/members.ts'
import { onEveryDatabase } from '../databases.ts'
import { serviceOn, startService, type TestService, testClock } from '../harness.ts'
import { addOrgUser, buildWorld } from '../world.ts'
import { addDevice } from './fleet.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

const hostnameHas = (value: string) => ({
  operator: 'AND' as const,
  conditions: [{ field: 'hostname', operator: 'contains', value }],
})

onEveryDatabase((kind, open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const admin = service.client(world.tokens.bakery)
    const filter = await admin.call(api.filters.create, {
      body: { name: 'kitchen machines', conditions: hostnameHas('kitchen') },
    })
    const create = (more: Record<string, unknown> = {}) =>
      admin.call(api.deviceGroups.create, {
        body: { name: 'Kitchen', type: 'dynamic', filterId: filter.id, ...more },
      })
    const enroll = (hostname: string, siteId?: string) =>
      addDevice(service, world, bakery, hostname, siteId === undefined ? {} : { siteId })
    const members = async (id: string) =>
      (await admin.call(api.deviceGroups.devices, { params: { id } })).data.map((one) => one.hostname)
    const log = async (id: string) =>
      (await admin.call(api.deviceGroups.log, { params: { id } })).data.map((one) =>
        [one.hostname, one.action, one.reason].join(' '),
      )
    const rename = (deviceId: string, hostname: string) =>
      service.storage.write((tx) =>
        tx
          .updateTable('devices')
          .set({ hostname, hostname_key: hostname })
          .where('id', '=', deviceId)
          .execute(),
      )
    const refresh = async (on: TestService = service) => {
      clock.forward(60)
      while (await refreshDueGroups({ storage: on.storage, clock })) {
        // Until no group is due.
      }
    }
    return { clock, service, world, bakery, admin, filter, create, enroll, members, log, rename, refresh }
  }

  describe('a dynamic group', () => {
    it('has the devices that its filter matches as soon as it is created', async () => {
      const { clock, enroll, create, members, log } = await start()
      await enroll('kitchen-1')
      await enroll('office-1')
      const group = await create()
      expect(group).toMatchObject({ type: 'dynamic', deviceCount: 1, evaluatedAt: clock() })
      expect(await members(group.id)).toEqual(['kitchen-1'])
      expect(await log(group.id)).toEqual(['kitchen-1 added filter_match'])
    })

    it('has devices of its organization, and of its site if it has one', async () => {
      const { service, world, bakery, admin, enroll, create, members } = await start()
      await enroll('kitchen-1', bakery.siteId)
      await enroll('kitchen-2')
      await addDevice(service, world, world.orgs.garage, 'kitchen-of-the-garage')
      expect(await members((await create()).id)).toEqual(['kitchen-1', 'kitchen-2'])
      const ofSite = await admin.call(api.deviceGroups.create, {
        body: {
          name: 'Here',
          type: 'dynamic',
          siteId: bakery.siteId,
          filterId: (await create()).filterId,
        },
      })
      expect(await members(ofSite.id)).toEqual(['kitchen-1'])
    })

    it('follows a change of its filter at once, and a change to another filter', async () => {
      const { admin, filter, enroll, create, members, log } = await start()
      await enroll('kitchen-1')
      await enroll('office-1')
      const { id } = await create()
      const change = { params: { id: filter.id }, body: { conditions: hostnameHas('office') } }
      await admin.call(api.filters.update, change)
      expect(await members(id)).toEqual(['office-1'])
      const both = await admin.call(api.filters.create, {
        body: { name: 'both', conditions: hostnameHas('-1') },
      })
      const after = await admin.call(api.deviceGroups.update, { params: { id }, body: { filterId: both.id } })
      expect(after).toMatchObject({ filterId: both.id, deviceCount: 2 })
      expect(await members(id)).toEqual(['kitchen-1', 'office-1'])
      expect([...(await log(id))].sort()).toEqual([
        'kitchen-1 added filter_match',
        'kitchen-1 added filter_match',
        'kitchen-1 removed filter_unmatch',
        'office-1 added filter_match',
      ])
    })

    it('follows changes of its devices within a minute', async () => {
      const { clock, admin, enroll, create, members, rename, refresh, log } = await start()
      const first = await enroll('kitchen-1')
      const { id } = await create()
      await enroll('kitchen-2')
      await rename(first, 'office-1')
      expect(await members(id)).toEqual(['office-1'])
      await refresh()
      expect(await members(id)).toEqual(['kitchen-2'])
      expect([...(await log(id))].sort()).toEqual([
        'kitchen-2 added filter_match',
        'office-1 added filter_match',
        'office-1 removed filter_unmatch',
      ])
      const { evaluatedAt } = await admin.call(api.deviceGroups.show, { params: { id } })
      expect(evaluatedAt).toBe(clock())
    })

    it('is evaluated once a minute by any of the processes, and written only when it changed', async () => {
      const { clock, service, enroll, create, members } = await start()
      const { id } = await create()
      const replicas = [service]
      if (kind === 'postgres') replicas.push(await serviceOn(service, { clock }))
      await enroll('kitchen-1')
      const evaluate = async () =>
        (
          await Promise.all(
            replicas.flatMap(({ storage }) => [1, 2].map(() => refreshDueGroups({ storage, clock }))),
          )
        ).filter((worked) => worked).length
      clock.forward(59)
      expect(await evaluate()).toBe(0)
      expect(await members(id)).toEqual([])
      clock.forward(1)
      expect(await evaluate()).toBe(1)
      expect(await members(id)).toEqual(['kitchen-1'])
      expect(await evaluate()).toBe(0)

      const changes = async () =>
        (await service.storage.read.selectFrom('device_group_changes').select('id').execute()).length
      expect(await changes()).toBe(1)
      clock.forward(60)
      expect(await evaluate()).toBe(1)
      expect(await changes()).toBe(1)
    })

    it('that cannot be evaluated does not block the others', async () => {
      const { clock, service, filter, enroll, create, members } = await start()
      const good = await create()
      const broken = { ...filter, id: '00000000-0000-7000-8000-000000000001' }
      await service.storage.write(async (tx) => {
        const { orgId, createdBy, createdAt } = broken
        const conditions = '{"operator":"AND"'
        const stamps = { created_at: createdAt, updated_at: createdAt }
        const row = {
          id: broken.id,
          org_id: orgId,
          name: 'x',
          description: null,
          conditions,
          created_by: createdBy,
        }
        await tx
          .insertInto('saved_filters')
          .values({ ...row, ...stamps })
          .execute()
        const group = {
          id: '00000000-0000-7000-8000-000000000002',
          org_id: orgId,
          name: 'broken',
          type: 'dynamic',
        }
        await tx
          .insertInto('device_groups')
          .values({
            ...group,
            site_id: null,
            parent_id: null,
            evaluated_at: null,
            filter_id: broken.id,
            ...stamps,
          })
          .execute()
      })
      await enroll('kitchen-1')
      clock.forward(60)
      await expect(refreshDueGroups({ storage: service.storage, clock })).rejects.toThrow('JSON')
      expect(await members(good.id)).toEqual(['kitchen-1'])
    })

    it('waits for only some groups of another partner, however many those are', async () => {
      const { clock, service, world, enroll, members, create } = await start()
      const other = service.client(world.tokens.harbor)
      const filter = await other.call(api.filters.create, {
        body: { name: 'many', conditions: hostnameHas('kitchen') },
      })
      for (let n = 0; n < 60; n++) {
        await other.call(api.deviceGroups.create, {
          body: { name: `Many ${n}`, type: 'dynamic', filterId: filter.id },
        })
      }
      clock.forward(1)
      const group = await create()
      await enroll('kitchen-1')
      clock.forward(61)
      await refreshDueGroups({ storage: service.storage, clock })
      expect(await members(group.id)).toEqual(['kitchen-1'])
    })

    it('with many devices is filled in the background, in small transactions', async () => {
      const { clock, service, admin, enroll, create, filter, refresh } = await start()
      const id = await enroll('kitchen-0')
      const { storage } = service
      const one = await storage.read
        .selectFrom('devices')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      await storage.write(async (tx) => {
        for (let n = 1; n <= 1200; n++) {
          const [own, hostname] = [newId(), `kitchen-${n}`]
          const row = {
            ...one,
            id: own,
            agent_id: own.padEnd(64, '0'),
            token_hash: own,
            hostname,
            hostname_key: hostname,
          }
          await tx
            .insertInto('devices')
            .values({ ...row, watchdog_token_hash: null })
            .execute()
        }
      })
      const group = await create()
      expect(group).toMatchObject({ deviceCount: 0, evaluatedAt: null })
      await refresh()
      const params = { id: group.id }
      expect(await admin.call(api.deviceGroups.show, { params })).toMatchObject({ deviceCount: 1201 })
      const written = await storage.read
        .selectFrom('device_group_changes')
        .select('created_at')
        .where('group_id', '=', group.id)
        .execute()
      expect(written).toHaveLength(1201)
      // And emptied again.
      const body = { conditions: hostnameHas('nowhere') }
      await admin.call(api.filters.update, { params: { id: filter.id }, body })
      expect(await admin.call(api.deviceGroups.show, { params })).toMatchObject({ deviceCount: 1201 })
      await refreshDueGroups({ storage, clock })
      expect(await admin.call(api.deviceGroups.show, { params })).toMatchObject({ deviceCount: 0 })
    })

    it('of a filter with many groups is filled in the background', async () => {
      const { clock, service, admin, enroll, create, filter, members } = await start()
      await enroll('office-1')
      const groups: string[] = []
      for (let n = 0; n < 21; n++) groups.push((await create({ name: `Group ${n}` })).id)
      const body = { conditions: hostnameHas('office') }
      await admin.call(api.filters.update, { params: { id: filter.id }, body })
      expect(await members(groups[0]!)).toEqual([])
      while (await refreshDueGroups({ storage: service.storage, clock }));
      for (const id of groups) expect(await members(id)).toEqual(['office-1'])
    })

    it('has no manual members, but pinned ones', async () => {
      const { admin, enroll, create, members, rename, refresh, log } = await start()
      const found = await enroll('kitchen-1')
      const other = await enroll('office-1')
      const { id } = await create()
      const body = { deviceIds: [other] }
      for (const entry of [api.deviceGroups.add, api.deviceGroups.take]) {
        await expect(admin.request(entry, { params: { id }, body })).rejects.toMatchObject({
          status: 409,
          code: 'conflict',
          message: expect.stringContaining('pin'),
        })
      }
      const pin = (deviceId: string) => admin.call(api.deviceGroups.pin, { params: { id, deviceId } })
      const unpin = (deviceId: string) => admin.call(api.deviceGroups.unpin, { params: { id, deviceId } })
      expect(await pin(other)).toMatchObject({ hostname: 'office-1', isPinned: true, addedBy: 'manual' })
      expect(await pin(found)).toMatchObject({ isPinned: true, addedBy: 'dynamic_rule' })
      await rename(found, 'cellar-1')
      await refresh()
      expect(await members(id)).toEqual(['cellar-1', 'office-1'])

      await rename(found, 'kitchen-1')
      expect(await unpin(found)).toMatchObject({ isMember: true })
      expect(await unpin(other)).toMatchObject({ isMember: false })
      expect(await members(id)).toEqual(['kitchen-1'])
      await expect(unpin(other)).rejects.toEqual(refused(404, 'not_found'))
      expect([...(await log(id))].sort()).toEqual([
        'kitchen-1 added filter_match',
        'office-1 added pinned',
        'office-1 removed unpinned',
      ])
    })

    it('cannot depend on groups, which could be circular', async () => {
      const { admin, bakery, filter, create } = await start()
      const conditions = {
        operator: 'AND' as const,
        conditions: [
          {
            operator: 'OR' as const,
            conditions: [{ field: 'groupId', operator: 'equals', value: bakery.groupId }],
          },
        ],
      }
      const ofGroups = await admin.call(api.filters.create, { body: { name: 'of groups', conditions } })
      const asks = { status: 400, details: [{ path: 'body.filterId' }] }
      await expect(create({ filterId: ofGroups.id })).rejects.toMatchObject(asks)
      const { id } = await create()
      const other = admin.call(api.deviceGroups.update, { params: { id }, body: { filterId: ofGroups.id } })
      await expect(other).rejects.toMatchObject(asks)
      const change = admin.call(api.filters.update, { params: { id: filter.id }, body: { conditions } })
      await expect(change).rejects.toMatchObject({ status: 400, details: [{ path: 'body.conditions' }] })
    })

    it('requires a filter, which cannot be deleted meanwhile', async () => {
      const { admin, filter, create } = await start()
      await expect(create({ filterId: null })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.filterId' }],
      })
      const { id } = await create()
      const params = { id: filter.id }
      await expect(admin.call(api.filters.remove, { params })).rejects.toMatchObject({
        status: 409,
        code: 'conflict',
        details: { deviceGroups: 1 },
        message: '1 device group takes its devices from this filter',
      })
      await admin.call(api.deviceGroups.remove, { params: { id } })
      await admin.call(api.filters.remove, { params })
    })

    it('shows members restricted to it its devices of that moment', async () => {
      const { service, bakery, admin, filter, enroll, create } = await start()
      await enroll('kitchen-1')
      await enroll('office-1')
      const { id } = await create()
      const token = await addOrgUser(service, 'cook', bakery.id, { groupIds: [id] })
      const seen = async () =>
        (await service.client(token).call(api.devices.list)).data.map(({ hostname }) => hostname)
      expect(await seen()).toEqual(['kitchen-1'])
      const change = { params: { id: filter.id }, body: { conditions: hostnameHas('office') } }
      await admin.call(api.filters.update, change)
      expect(await seen()).toEqual(['office-1'])
    })
  })

  it('the newest 10,000 membership changes of a group are kept', async () => {
    const { clock, service, enroll, create, log } = await start()
    const deviceId = await enroll('kitchen-1')
    const { id } = await create()
    const before = {
      device_id: deviceId,
      group_id: id,
      action: 'added',
      reason: 'manual',
      created_at: clock(),
    }
    clock.forward(1)
    await service.storage.write(async (tx) => {
      for (let round = 0; round < 10; round += 1) {
        const rows = Array.from({ length: 1000 }, () => ({ ...before, id: newId() }))
        await tx.insertInto('device_group_changes').values(rows).execute()
      }
      for (let turn = 0; turn < 3; turn += 1) {
        await removeMembers(tx, id, [deviceId], { reason: 'filter_unmatch', now: clock() })
        await addMembers(tx, id, [deviceId], { reason: 'filter_match', now: clock() })
      }
    })
    expect((await log(id)).slice(0, 7)).toEqual([
      ...Array.from({ length: 3 }, () => [
        'kitchen-1 added filter_match',
        'kitchen-1 removed filter_unmatch',
      ]).flat(),
      'kitchen-1 added manual',
    ])
    const rows = service.storage.read.selectFrom('device_group_changes').select('id')
    expect(await rows.execute()).toHaveLength(10_000)
  })

  it('membership changes are kept for 90 days', async () => {
    const { clock, service, enroll, create, log } = await start()
    await enroll('kitchen-1')
    const { id } = await create()
    clock.forward(90 * 24 * 3600)
    await service.storage.write((tx) => sweepChanges(tx, clock()))
    expect(await log(id)).toHaveLength(1)
    clock.forward(1)
    await service.storage.write((tx) => sweepChanges(tx, clock()))
    const rows = service.storage.read.selectFrom('device_group_changes').select('id')
    expect(await rows.execute()).toEqual([])
  })
})
