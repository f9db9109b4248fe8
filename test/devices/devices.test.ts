import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { DeviceChange } from '../../src/devices/contract.ts'
import { inTurn } from '../databases.ts'
import { addGroup, addOrgUser } from '../world.ts'
import { begin } from './device-fixture.ts'

const failing = (status: number, code: string, message?: string) =>
  expect.objectContaining({ status, code, ...(message !== undefined && { message }) })

inTurn((open) => {
  describe('a device', () => {
    it('has a name, tags, custom fields and a role, whose changes are audited before and after', async () => {
      const { client, bakery } = await begin(open)
      const params = { id: bakery.deviceId }
      const update = (body: Partial<DeviceChange>) => client.call(api.devices.update, { params, body })
      expect(
        await update({
          displayName: 'Till',
          tags: ['zoo', 'Éclair', 'bar', 'bar'],
          customFields: { rack: '4', owner: 'Ada' },
          deviceRole: 'server',
        }),
      ).toMatchObject({
        displayName: 'Till',
        tags: ['bar', 'zoo', 'Éclair'],
        customFields: { rack: '4', owner: 'Ada' },
        deviceRole: 'server',
        deviceRoleSource: 'manual',
      })
      const changed = await update({
        displayName: null,
        addTags: ['new'],
        removeTags: ['zoo', 'never there'],
        customFields: { rack: null, floor: '2' },
      })
      expect(changed).toMatchObject({ displayName: null, customFields: { owner: 'Ada', floor: '2' } })
      const stored = await client.call(api.devices.show, { params })
      expect(stored).toMatchObject({ ...changed, tags: ['bar', 'new', 'Éclair'] })
      expect((await client.call(api.devices.list)).data[0]).toEqual(changed)
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'device.update', limit: 1 } })
      expect(data[0]).toMatchObject({
        resource: { name: 'bakery-pc' },
        details: {
          before: { displayName: 'Till', customFields: { rack: '4', owner: 'Ada' } },
          after: { displayName: null, customFields: { owner: 'Ada', floor: '2' } },
        },
      })
      expect(data[0]?.details).not.toHaveProperty('after.hostname')
    })

    it('refuses empty and invalid changes', async () => {
      const { client, bakery, orgs } = await begin(open)
      const update = (body: Record<string, unknown>) =>
        client.call(api.devices.update, { params: { id: bakery.deviceId }, body: body as DeviceChange })
      await expect(update({})).rejects.toEqual(failing(400, 'invalid_request', 'No updates provided'))
      const wrong = [
        { tags: ['a'], addTags: ['b'] },
        { tags: [' padded'] },
        { tags: [''] },
        { tags: ['x'.repeat(101)] },
        { addTags: Array.from({ length: 101 }, (_, n) => `tag ${n}`) },
        { customFields: { Upper: 'x' } },
        { customFields: { '1st': 'x' } },
        { customFields: { note: 'x'.repeat(1001) } },
        { customFields: { note: 7 } },
        { deviceRole: 'toaster' },
      ]
      for (const body of wrong) await expect(update(body)).rejects.toEqual(failing(400, 'invalid_request'))
      await update({ tags: Array.from({ length: 100 }, (_, n) => `tag ${n}`) })
      await expect(update({ addTags: ['one more'] })).rejects.toEqual(failing(400, 'invalid_request'))
      await update({ addTags: ['one more'], removeTags: ['tag 7'] })
      await expect(update({ siteId: orgs.garage.siteId })).rejects.toEqual(failing(403, 'site_access_denied'))
    })

    it('keeps a role set by a user until it is left to the agent again', async () => {
      const { service, client, bakery, show } = await begin(open)
      const params = { id: bakery.deviceId }
      const beat = () =>
        service.client(bakery.agentToken).call(api.agents.heartbeat, {
          params: { id: bakery.agentId },
          body: { status: 'ok', agentVersion: '0.1.0', deviceRole: 'workstation' },
        })
      await beat()
      expect(await show(params.id)).toMatchObject({ deviceRole: 'workstation', deviceRoleSource: 'auto' })
      await client.call(api.devices.update, { params, body: { deviceRole: 'nas' } })
      await beat()
      expect(await show(params.id)).toMatchObject({ deviceRole: 'nas', deviceRoleSource: 'manual' })
      await client.call(api.devices.update, { params, body: { deviceRole: null } })
      await beat()
      expect(await show(params.id)).toMatchObject({ deviceRole: 'workstation', deviceRoleSource: 'auto' })
    })

    it('moves between sites of its organization, and for restricted members between theirs', async () => {
      const { service, tokens, client, bakery, orgs, enroll } = await begin(open)
      const site = async (name: string) =>
        (await client.call(api.sites.create, { body: { orgId: bakery.id, name } })).id
      const [shop, attic] = [await site('Shop'), await site('Attic')]
      const { deviceId: id } = await enroll('till-1', shop)
      const move = (token: string, siteId: string | null) =>
        service.client(token).call(api.devices.update, { params: { id }, body: { siteId } })
      expect(await move(tokens.bakery, null)).toMatchObject({ siteId: null })
      expect(await move(tokens.bakery, shop)).toMatchObject({ siteId: shop })
      await expect(move(tokens.system, orgs.garage.siteId)).rejects.toEqual(failing(400, 'invalid_request'))
      const narrow = await addOrgUser(service, 'narrow', bakery.id, { siteIds: [shop, bakery.siteId] })
      expect(await move(narrow, bakery.siteId)).toMatchObject({ siteId: bakery.siteId })
      await expect(move(narrow, null)).rejects.toEqual(failing(403, 'site_access_denied'))
      await expect(move(narrow, attic)).rejects.toEqual(failing(403, 'site_access_denied'))
      await move(tokens.bakery, attic)
      await expect(move(narrow, shop)).rejects.toEqual(failing(404, 'not_found'))
    })

    it('keeps all of many concurrent changes', async () => {
      const { client, bakery, show } = await begin(open)
      const names = Array.from({ length: 20 }, (_, n) => `tag-${String(n).padStart(2, '0')}`)
      await Promise.all(
        names.map((name, n) =>
          client.call(api.devices.update, {
            params: { id: bakery.deviceId },
            body: { addTags: [name], customFields: { [`field_${n}`]: name } },
          }),
        ),
      )
      const device = await show(bakery.deviceId)
      expect(device.tags).toEqual(names)
      expect(Object.keys(device.customFields)).toHaveLength(20)
    })

    it('shows its software by name, to users who see the device', async () => {
      const { service, tokens, client, bakery } = await begin(open)
      const software = ['Zip', 'apt', 'Álbum', 'a%b'].map((name) => ({ name, version: '1' }))
      await service.client(bakery.agentToken).call(api.agents.inventory, {
        params: { id: bakery.agentId },
        body: { software },
      })
      const params = { id: bakery.deviceId }
      const names = async (query: Record<string, string> = {}) => {
        const { data, pagination } = await client.call(api.devices.software, { params, query })
        return [data.map(({ name }) => name), pagination.total]
      }
      expect(await names()).toEqual([['a%b', 'apt', 'Zip', 'Álbum'], 4])
      expect(await names({ name: 'ÁL' })).toEqual([['Álbum'], 1])
      expect(await names({ name: '%' })).toEqual([['a%b'], 1])
      expect(await names({ limit: '2', page: '2' })).toEqual([['Zip', 'Álbum'], 4])
      const garage = service.client(tokens.garage)
      await expect(garage.call(api.devices.software, { params })).rejects.toEqual(failing(404, 'not_found'))
    })
  })

  it('a device is found by long software names and custom fields in any script', async () => {
    const { service, client, bakery } = await begin(open)
    const names = ['\ufdfa'.repeat(500), `${'\ufdfa'.repeat(499)}x`]
    await service.client(bakery.agentToken).call(api.agents.inventory, {
      params: { id: bakery.agentId },
      body: { software: names.map((name) => ({ name })) },
    })
    const value = '😀'.repeat(1000)
    const params = { id: bakery.deviceId }
    await client.call(api.devices.update, { params, body: { customFields: { faces: value } } })
    const found = async (
      field: string,
      operator: 'equals' | 'contains' | 'hasAll',
      value: string | string[],
    ) =>
      (
        await client.call(api.filters.preview, {
          body: { conditions: { operator: 'AND', conditions: [{ field, operator, value }] } },
        })
      ).data.totalCount
    expect(await found('software.installed', 'equals', names[1]!)).toBe(1)
    expect(await found('software.installed', 'hasAll', names)).toBe(1)
    expect(await found('software.installed', 'contains', '\ufdfax')).toBe(1)
    expect(await found('software.installed', 'equals', names[0]!.slice(1))).toBe(0)
    expect(await found('custom.faces', 'equals', value)).toBe(1)
    expect(await found('custom.faces', 'equals', value.slice(2))).toBe(0)
  })

  describe('tags', () => {
    it('are added to and removed from many devices in one change with one audit entry', async () => {
      const { client, bakery, enroll, show } = await begin(open)
      const one = (await enroll('web-1')).deviceId
      const two = (await enroll('web-2')).deviceId
      await client.call(api.devices.update, { params: { id: one }, body: { tags: ['old', 'kept'] } })
      const body = { deviceIds: [one, two, one], add: ['prod', 'prod'], remove: ['old'] }
      expect(await client.call(api.devices.tag, { body })).toEqual({ success: true, devices: 2 })
      expect((await show(one)).tags).toEqual(['kept', 'prod'])
      expect((await show(two)).tags).toEqual(['prod'])
      expect((await show(bakery.deviceId)).tags).toEqual([])
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'device.tag' } })
      expect(data).toMatchObject([{ orgId: bakery.id, details: { after: { add: ['prod', 'prod'] } } }])
    })

    it('are changed on no device if one is invisible, of another organization, or full', async () => {
      const { service, tokens, client, bakery, orgs, enroll, show } = await begin(open)
      const { deviceId: one } = await enroll('web-1')
      const tag = (token: string, deviceIds: string[]) =>
        service.client(token).call(api.devices.tag, { body: { deviceIds, add: ['prod'] } })
      const { deviceId: far } = orgs.garage
      await expect(tag(tokens.bakery, [one, far])).rejects.toEqual(failing(404, 'not_found'))
      await expect(tag(tokens.acme, [one, far])).rejects.toEqual(failing(400, 'invalid_request'))
      const groupId = await addGroup(service, bakery.id, 'web', [one])
      const grouped = await addOrgUser(service, 'grouped', bakery.id, { groupIds: [groupId] })
      await expect(tag(grouped, [one, bakery.deviceId])).rejects.toEqual(failing(404, 'not_found'))
      const full = Array.from({ length: 100 }, (_, n) => `tag ${n}`)
      await client.call(api.devices.update, { params: { id: bakery.deviceId }, body: { tags: full } })
      await expect(tag(tokens.bakery, [one, bakery.deviceId])).rejects.toEqual(
        failing(400, 'invalid_request'),
      )
      expect((await show(one)).tags).toEqual([])
      await tag(grouped, [one])
      expect((await show(one)).tags).toEqual(['prod'])
    })
  })

  describe('decommissioning a device', () => {
    it('refuses its agent, frees a place under the cap, and is undone by restoring', async () => {
      const { service, client, bakery, show } = await begin(open)
      const params = { id: bakery.deviceId }
      const beat = () =>
        service.client(bakery.agentToken).call(api.agents.heartbeat, {
          params: { id: bakery.agentId },
          body: { status: 'ok', agentVersion: '0.1.0' },
        })
      await expect(client.call(api.devices.restore, { params })).rejects.toEqual(
        failing(400, 'not_decommissioned', 'Device is not decommissioned'),
      )
      expect(await client.call(api.devices.decommission, { params })).toMatchObject({
        status: 'decommissioned',
      })
      await expect(client.call(api.devices.decommission, { params })).rejects.toEqual(
        failing(400, 'already_decommissioned', 'Device is already decommissioned'),
      )
      await expect(beat()).rejects.toEqual(
        failing(403, 'device_decommissioned', 'Device has been decommissioned'),
      )
      expect((await show(params.id)).status).toBe('decommissioned')
      expect(await client.call(api.devices.restore, { params })).toMatchObject({ status: 'offline' })
      await beat()
      expect((await show(params.id)).status).toBe('online')
    })

    it('cannot be undone beyond the caps of organization and partner, even concurrently', async () => {
      const { service, client, bakery, enroll, partners } = await begin(open)
      const gone = [(await enroll('a')).deviceId, (await enroll('b')).deviceId, (await enroll('c')).deviceId]
      for (const id of gone) await client.call(api.devices.decommission, { params: { id } })
      const restore = (id: string) => client.call(api.devices.restore, { params: { id } })
      const cap = (table: 'organizations' | 'partners', id: string, max: number | null) =>
        service.storage.write((tx) =>
          tx.updateTable(table).set({ max_devices: max }).where('id', '=', id).execute(),
        )
      await cap('partners', partners.acme, 2)
      await expect(restore(gone[0]!)).rejects.toMatchObject({
        status: 403,
        code: 'device_limit_reached',
        details: { currentDevices: 2, maxDevices: 2 },
      })
      await cap('partners', partners.acme, null)
      await cap('organizations', bakery.id, 2)
      const tried = await Promise.allSettled(gone.map(restore))
      expect(tried.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      expect(tried.find(({ status }) => status === 'rejected')).toMatchObject({
        reason: { status: 403, code: 'device_limit_reached' },
      })
    })

    it('must precede the permanent deletion, which leaves only the audit log', async () => {
      const { service, client, bakery } = await begin(open)
      const params = { id: bakery.deviceId }
      await client.call(api.devices.update, { params, body: { tags: ['x'], customFields: { a: 'b' } } })
      await expect(client.call(api.devices.remove, { params })).rejects.toEqual(
        failing(400, 'not_decommissioned'),
      )
      await client.call(api.devices.decommission, { params })
      expect(await client.call(api.devices.remove, { params })).toMatchObject({ success: true })
      await expect(client.call(api.devices.show, { params })).rejects.toEqual(failing(404, 'not_found'))
      for (const table of ['device_tags', 'device_custom_fields', 'device_group_devices'] as const) {
        const rows = service.storage.read.selectFrom(table).selectAll().where('device_id', '=', params.id)
        expect(await rows.execute()).toEqual([])
      }
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'device.delete', limit: 1 } })
      expect(data).toMatchObject([{ resource: { name: 'bakery-pc' }, details: { before: { tags: ['x'] } } }])
    })
  })

  it('a viewer changes no device, and an API key only what its scopes allow', async () => {
    const { service, tokens, client, bakery } = await begin(open)
    const params = { id: bakery.deviceId }
    const body = { displayName: 'x' }
    const viewer = service.client(tokens.bakeryViewer)
    await expect(viewer.call(api.devices.update, { params, body })).rejects.toEqual(failing(403, 'forbidden'))
    const keyed = async (scope: string) => {
      const made = await client.call(api.apiKeys.create, { body: { name: scope, scopes: [scope] } })
      return service.client(undefined, { 'x-api-key': made.key })
    }
    const reader = await keyed('devices:read')
    expect((await reader.call(api.devices.show, { params })).id).toBe(params.id)
    await expect(reader.call(api.devices.update, { params, body })).rejects.toEqual(
      failing(403, 'api_key_scope'),
    )
    const writer = await keyed('devices:write')
    expect((await writer.call(api.devices.update, { params, body })).displayName).toBe('x')
    await expect(writer.call(api.devices.decommission, { params })).rejects.toEqual(
      failing(403, 'api_key_scope'),
    )
  })
})
