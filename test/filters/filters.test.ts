import { beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { ConditionGroup } from '../../src/filters/contract.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addOrgUser, buildWorld, type World } from '../world.ts'

const all = (...conditions: ConditionGroup['conditions']): ConditionGroup => ({ operator: 'AND', conditions })
const isPc = all({ field: 'hostname', operator: 'endsWith', value: '-PC' })

onEveryDatabase((kind, open) => {
  describe('saved filters', () => {
    let service: TestService
    let world: World
    beforeAll(async () => {
      service = await startService(open)
      world = await buildWorld(service)
      return () => service.close()
    })
    const as = (token: string) => service.client(token)
    const saved = (token: string, name: string, orgId?: string) =>
      as(token).call(api.filters.create, { body: { name, conditions: isPc, ...(orgId && { orgId }) } })

    it('can be created, shown, listed, changed and deleted with all fields', async () => {
      const client = as(world.tokens.bakery)
      const filter = await client.call(api.filters.create, {
        body: { name: 'Ovens', description: 'hot', conditions: isPc },
      })
      expect(filter).toEqual({
        id: expect.any(String),
        orgId: world.orgs.bakery.id,
        name: 'Ovens',
        description: 'hot',
        conditions: isPc,
        createdBy: expect.any(String),
        createdAt: expect.any(String),
        updatedAt: expect.any(String),
      })
      const params = { id: filter.id }
      expect(await client.call(api.filters.show, { params })).toEqual(filter)
      const changed = await client.call(api.filters.update, { params, body: { description: null } })
      expect(changed).toEqual({ ...filter, description: null, updatedAt: changed.updatedAt })
      expect(await client.call(api.filters.show, { params })).toEqual(changed)
      expect(await client.call(api.filters.remove, { params })).toEqual(changed)
      const gone = client.call(api.filters.show, { params })
      await expect(gone).rejects.toMatchObject({ status: 404, message: 'Saved filter not found' })
    })

    it('belong to the organization of a caller in organization scope, whatever their orgId', async () => {
      const filter = await saved(world.tokens.bakery, 'mine', world.orgs.harbor.id)
      expect(filter.orgId).toBe(world.orgs.bakery.id)
    })

    it.each(['acme', 'system'] as const)('need an orgId from %s', async (who) => {
      const scope = who === 'acme' ? 'partner' : 'system'
      await expect(saved(world.tokens[who], 'nowhere')).rejects.toMatchObject({
        status: 400,
        message: `orgId is required for ${scope} scope`,
        details: [{ path: 'body.orgId', message: `orgId is required for ${scope} scope` }],
      })
      const filter = await saved(world.tokens[who], 'somewhere', world.orgs.garage.id)
      expect(filter.orgId).toBe(world.orgs.garage.id)
    })

    it('are refused in an organization out of reach', async () => {
      const elsewhere = saved(world.tokens.acmeBakery, 'x', world.orgs.garage.id)
      await expect(elsewhere).rejects.toMatchObject({ status: 403, code: 'org_access_denied' })
    })

    it('are not changed by an empty body', async () => {
      const { id } = await saved(world.tokens.garage, 'still')
      const nothing = as(world.tokens.garage).call(api.filters.update, { params: { id }, body: {} })
      await expect(nothing).rejects.toMatchObject({ status: 400 })
    })

    it('are listed newest first across visible organizations, and found by name or description', async () => {
      const first = await saved(world.tokens.harbor, 'Ärger 100%')
      const second = await as(world.tokens.harbor).call(api.filters.create, {
        body: { name: 'other', description: 'no ÄRGER', conditions: isPc },
      })
      const list = await as(world.tokens.globex).call(api.filters.list)
      expect(list.total).toBe(list.data.length)
      const ids = list.data.map(({ id }) => id)
      expect(ids.slice(0, 2)).toEqual([second.id, first.id])
      const found = async (search: string) => {
        const { data } = await as(world.tokens.globex).call(api.filters.list, { query: { search } })
        return data.map(({ id }) => id)
      }
      expect(await found('ärger')).toEqual([second.id, first.id])
      expect(await found('0%')).toEqual([first.id])
      expect(await found('0_')).toEqual([])
      const { data } = await as(world.tokens.acmeNone).call(api.filters.list)
      expect(data).toEqual([])
      const seen = await as(world.tokens.acmeBakery).call(api.filters.list)
      expect(new Set(seen.data.map(({ orgId }) => orgId))).toEqual(new Set([world.orgs.bakery.id]))
    })

    it('are listed in pages, for any number of filters', async () => {
      const before = (await as(world.tokens.garage).call(api.filters.list)).total
      for (let n = before; n < 25; n++) await saved(world.tokens.garage, `one of many ${n}`)
      const page = (query: { page?: number; limit?: number }) =>
        as(world.tokens.garage).call(api.filters.list, { query })
      const first = await page({ limit: 100 })
      expect(first).toMatchObject({ total: 25, pagination: { page: 1, limit: 20, total: 25 } })
      const second = await page({ page: 2 })
      expect(new Set([...first.data, ...second.data].map(({ id }) => id)).size).toBe(25)
    })

    it('cannot be changed with read permission only, which suffices for previews', async () => {
      const { id } = await saved(world.tokens.bakery, 'looked at')
      const viewer = as(world.tokens.bakeryViewer)
      const params = { id }
      await expect(viewer.call(api.filters.remove, { params })).rejects.toMatchObject({ status: 403 })
      expect((await viewer.call(api.filters.savedPreview, { params })).data.totalCount).toBe(1)
    })

    it('cannot be deleted while a device group uses them', async () => {
      const { id } = await saved(world.tokens.bakery, 'needed')
      const { groupId } = world.orgs.bakery
      await service.storage.write((tx) =>
        tx.updateTable('device_groups').set({ filter_id: id }).where('id', '=', groupId).execute(),
      )
      const removal = as(world.tokens.bakery).call(api.filters.remove, { params: { id } })
      await expect(removal).rejects.toMatchObject({ status: 409, code: 'conflict' })
      await service.storage.write((tx) =>
        tx.updateTable('device_groups').set({ filter_id: null }).where('id', '=', groupId).execute(),
      )
      expect((await as(world.tokens.bakery).call(api.filters.remove, { params: { id } })).id).toBe(id)
    })

    it('work with an API key, within its scopes', async () => {
      const { id: orgId } = world.orgs.bakery
      const keyWith = async (scopes: string[]) => {
        const body = { orgId, name: 'filters', scopes: scopes as never }
        const { key } = await as(world.tokens.system).call(api.apiKeys.create, { body })
        return service.client(undefined, { 'x-api-key': key! })
      }
      const reader = await keyWith(['devices:read'])
      expect((await reader.call(api.filters.preview, { body: { conditions: isPc } })).data.totalCount).toBe(1)
      const making = reader.call(api.filters.create, { body: { name: 'k', conditions: isPc } })
      await expect(making).rejects.toMatchObject({ status: 403, code: 'api_key_scope' })
      const writer = await keyWith(['devices:read', 'devices:write'])
      const made = await writer.call(api.filters.create, { body: { name: 'k', conditions: isPc } })
      expect(made.orgId).toBe(orgId)
    })

    describe('a preview', () => {
      const hostnames = async (token: string, conditions = isPc, limit?: number) => {
        const body = { conditions, ...(limit !== undefined && { limit }) }
        const { data } = await as(token).call(api.filters.preview, { body })
        return { total: data.totalCount, names: data.devices.map(({ hostname }) => hostname) }
      }

      it('counts all matches and shows the first by hostname, within the scope of the caller', async () => {
        const { tokens } = world
        const everywhere = ['bakery-pc', 'garage-pc', 'harbor-pc']
        expect(await hostnames(tokens.system)).toEqual({ total: 3, names: everywhere })
        expect(await hostnames(tokens.system, isPc, 2)).toEqual({ total: 3, names: everywhere.slice(0, 2) })
        expect(await hostnames(tokens.acme)).toEqual({ total: 2, names: ['bakery-pc', 'garage-pc'] })
        expect(await hostnames(tokens.acme, isPc, 1)).toEqual({ total: 2, names: ['bakery-pc'] })
        expect(await hostnames(tokens.acmeBakery)).toEqual({ total: 1, names: ['bakery-pc'] })
        expect(await hostnames(tokens.acmeNone)).toEqual({ total: 0, names: [] })
        expect(await hostnames(tokens.harbor)).toEqual({ total: 1, names: ['harbor-pc'] })
      })

      it('never shows another tenant, whatever the conditions', async () => {
        const { harbor } = world.orgs
        const foreign = {
          operator: 'OR' as const,
          conditions: [
            ...all({ field: 'orgId', operator: 'in', value: [harbor.id] }).conditions,
            ...isPc.conditions,
          ],
        }
        expect(await hostnames(world.tokens.bakery, foreign)).toEqual({ total: 1, names: ['bakery-pc'] })
      })

      it('is restricted to the sites and groups of the caller', async () => {
        const { bakery } = world.orgs
        const nowhere = { siteIds: [] as string[] }
        const site = await addOrgUser(service, 'filter-site', bakery.id, { siteIds: [bakery.siteId] })
        const none = await addOrgUser(service, 'filter-nowhere', bakery.id, nowhere)
        const group = await addOrgUser(service, 'filter-group', bakery.id, { groupIds: [bakery.groupId] })
        expect((await hostnames(site)).total).toBe(1)
        expect((await hostnames(none)).total).toBe(0)
        expect((await hostnames(group)).total).toBe(1)
      })

      it('is limited to an organization on request, saved or not, and audited there', async () => {
        const { bakery, garage } = world.orgs
        const { id } = await saved(world.tokens.bakery, 'of one organization')
        const total = async (token: string, orgId: string) => {
          const one = await as(token).call(api.filters.preview, { body: { conditions: isPc, orgId } })
          const other = await as(token).call(api.filters.savedPreview, { params: { id }, query: { orgId } })
          expect(other.data.devices).toEqual(one.data.devices)
          return one.data.devices.map(({ hostname }) => hostname).join(' ')
        }
        expect(await total(world.tokens.acme, garage.id)).toBe('garage-pc')
        expect(await total(world.tokens.system, bakery.id)).toBe('bakery-pc')
        const nowhere = await addOrgUser(service, 'filter-none-of-one', bakery.id, { siteIds: [] })
        expect(await total(nowhere, bakery.id)).toBe('')
        const refused = { status: 403, code: 'org_access_denied' }
        await expect(total(world.tokens.bakery, garage.id)).rejects.toMatchObject(refused)
        const query = { orgId: garage.id, action: 'filter.preview' }
        const { data } = await as(world.tokens.garage).call(api.auditLogs.list, { query })
        expect(data).toMatchObject([{ orgId: garage.id, result: 'success' }])
      })

      it('of a saved filter covers all visible organizations, not only that of the filter', async () => {
        const { id } = await saved(world.tokens.bakery, 'shared')
        const call = { params: { id }, query: { limit: 1 } }
        const { data } = await as(world.tokens.acme).call(api.filters.savedPreview, call)
        expect(data).toEqual({
          totalCount: 2,
          devices: [
            {
              id: world.orgs.bakery.deviceId,
              hostname: 'bakery-pc',
              displayName: null,
              osType: 'linux',
              status: 'online',
              lastSeenAt: expect.any(String),
            },
          ],
          evaluatedAt: expect.any(String),
        })
        const foreign = as(world.tokens.harbor).call(api.filters.savedPreview, { params: { id } })
        await expect(foreign).rejects.toMatchObject({ status: 404 })
      })

      it.each([0, 101, 1.5])('is refused with a limit of %s', async (limit) => {
        const { id } = await saved(world.tokens.bakery, `limit ${limit}`)
        const client = as(world.tokens.bakery)
        const fault = (path: string) => ({
          status: 400,
          details: [{ path, message: 'must be a whole number from 1 to 100' }],
        })
        const body = { conditions: isPc, limit }
        await expect(client.call(api.filters.preview, { body })).rejects.toMatchObject(fault('body.limit'))
        const asked = client.call(api.filters.savedPreview, { params: { id }, query: { limit } })
        await expect(asked).rejects.toMatchObject(fault('query.limit'))
      })

      it.each([
        ['(a+)+$', 0],
        ['^(bakery|garage)*-(p|pc?)+$', 2],
        ['^(([a-z])+.)+[A-Z]([a-z])+$', 0],
        ['(?i)^HARBOR', 1],
      ])('evaluates %s correctly', async (value, total) => {
        const conditions = all({ field: 'hostname', operator: 'matches', value })
        expect((await hostnames(world.tokens.system, conditions)).total).toBe(total)
      })

      it('reports a pattern that is too complex for Postgres', async () => {
        const found = hostnames(
          world.tokens.system,
          all({ field: 'hostname', operator: 'matches', value: '(a|\\B){24}-pc$' }),
        )
        if (kind === 'sqlite') return expect(await found).toMatchObject({ total: 0 })
        await expect(found).rejects.toMatchObject({
          status: 400,
          details: [{ path: 'conditions', message: 'a pattern is too complex for this database' }],
        })
      })
    })

    it('use the fields that are listed', async () => {
      const { data } = await as(world.tokens.bakeryViewer).call(api.filters.fields)
      expect(data.find(({ key }) => key === 'status')).toEqual({
        key: 'status',
        label: 'Status',
        type: 'enum',
        operators: ['equals', 'notEquals', 'in', 'notIn'],
        values: ['online', 'offline', 'maintenance', 'decommissioned', 'quarantined', 'updating', 'pending'],
      })
    })
  })
})
