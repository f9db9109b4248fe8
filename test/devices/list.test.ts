import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { InputOf } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import { organizationScope, type Scope, systemScope } from '../../src/core/scope.ts'
import { countedAtOnce, listDevices } from '../../src/devices/store.ts'
import type { Db, Storage } from '../../src/storage/open.ts'
import { onEveryDatabase } from '../databases.ts'
import { addGroup, addOrgUser } from '../world.ts'
import { begin, enroller } from './device-fixture.ts'

type Query = InputOf<typeof api.devices.list>['query']

onEveryDatabase((kind, open) => {
  describe('the list of devices', () => {
    it('can be filtered by site, group, state, system, role, tag and part of a name', async () => {
      const { service, client, bakery, enroll } = await begin(open)
      const shop = await client.call(api.sites.create, { body: { orgId: bakery.id, name: 'Shop' } })
      const till = (await enroll('till_1', shop.id)).deviceId
      const web = (await enroll('web-1')).deviceId
      await client.call(api.devices.update, {
        params: { id: till },
        body: { displayName: 'Große KASSE', tags: ['front'], deviceRole: 'iot' },
      })
      await client.call(api.devices.decommission, { params: { id: web } })
      const groupId = await addGroup(service, bakery.id, 'web', [web])
      const names = async (query: Query) => {
        const { data, pagination } = await client.call(api.devices.list, { query })
        expect(pagination.total).toBe(data.length)
        return data.map(({ hostname }) => hostname)
      }
      expect(await names({})).toEqual(['bakery-pc', 'till_1', 'web-1'])
      expect(await names({ siteId: shop.id })).toEqual(['till_1'])
      expect(await names({ groupId })).toEqual(['web-1'])
      expect(await names({ status: 'decommissioned' })).toEqual(['web-1'])
      expect(await names({ osType: 'windows' })).toEqual([])
      expect(await names({ role: 'iot' })).toEqual(['till_1'])
      expect(await names({ tag: 'front' })).toEqual(['till_1'])
      expect(await names({ tag: 'fro' })).toEqual([])
      expect(await names({ search: 'ß' })).toEqual(['till_1'])
      expect(await names({ search: 'große k' })).toEqual(['till_1'])
      expect(await names({ search: '_' })).toEqual(['till_1'])
      expect(await names({ search: '-1', status: 'decommissioned' })).toEqual(['web-1'])
      expect(await names({ search: '%' })).toEqual([])
    })

    it('shows restricted members only their sites and groups, whatever the filter', async () => {
      const { service, client, bakery, enroll } = await begin(open)
      const shop = await client.call(api.sites.create, { body: { orgId: bakery.id, name: 'Shop' } })
      const till = (await enroll('till-1', shop.id)).deviceId
      const web = (await enroll('web-1')).deviceId
      const group = await addGroup(service, bakery.id, 'mine', [till])
      const other = await addGroup(service, bakery.id, 'other', [till, web])
      const ofSite = await addOrgUser(service, 'of-site', bakery.id, { siteIds: [shop.id] })
      const ofGroup = await addOrgUser(service, 'of-group', bakery.id, { groupIds: [group] })
      const names = async (token: string, query: Query) => {
        const { data, pagination } = await service.client(token).call(api.devices.list, { query })
        expect(pagination.total).toBe(data.length)
        return data.map(({ hostname }) => hostname)
      }
      for (const token of [ofSite, ofGroup]) {
        expect(await names(token, {})).toEqual(['till-1'])
        expect(await names(token, { search: '-' })).toEqual(['till-1'])
        expect(await names(token, { siteId: bakery.siteId })).toEqual([])
      }
      expect(await names(ofSite, { groupId: other })).toEqual(['till-1'])
      // They must not learn the members of a group they cannot see.
      expect(await names(ofGroup, { groupId: other })).toEqual([])
    })

    it('counts a large fleet as a question, and a small one at once', async () => {
      const { service, bakery, orgs, tokens } = await begin(open)
      const { storage } = service
      const [row] = await storage.read
        .selectFrom('devices')
        .selectAll()
        .where('org_id', '=', bakery.id)
        .limit(1)
        .execute()
      const before = await storage.read.selectFrom('devices').select('id').execute()
      const more = Array.from({ length: countedAtOnce }, () => ({ ...row!, id: newId(), agent_id: newId() }))
      for (let at = 0; at < more.length; at += 250) {
        const some = more.slice(at, at + 250).map((one) => ({ ...one, token_hash: one.id }))
        await storage.write((tx) => tx.insertInto('devices').values(some).execute())
      }
      const read = async (scope: Scope, filter: { orgId?: string; siteId?: string } = {}) => {
        let asked = 0
        const ask = <T>(work: (on: Db) => Promise<T>) => {
          asked += 1
          return work(storage.readQueries)
        }
        const { pagination } = await listDevices(storage.read, scope, { page: 1, limit: 3, ...filter }, ask)
        return { asked, total: pagination.total }
      }
      expect(await read(systemScope)).toEqual({ asked: 1, total: before.length + countedAtOnce })
      const ofBakery = await read(systemScope, { orgId: bakery.id })
      expect(ofBakery.asked).toBe(1)
      expect(ofBakery.total).toBeGreaterThan(countedAtOnce)
      expect((await read(systemScope, { orgId: orgs.garage.id })).asked).toBe(0)
      const few = await read(organizationScope(orgs.garage.id))
      expect(few.asked).toBe(0)
      expect(few.total).toBeLessThan(before.length)
      const client = service.client(tokens.system)
      const { pagination } = await client.call(api.devices.list, {
        query: { page: 7001, limit: '3' } as never,
      })
      expect(pagination.total).toBe(before.length + countedAtOnce)
    })

    it('continues from a cursor without duplicates or gaps despite concurrent changes', async () => {
      const { client, enroll } = await begin(open)
      for (let n = 0; n < 12; n++) await enroll(n % 3 === 0 ? 'twin' : `pc-${n}`)
      const all = (await client.call(api.devices.list)).data.map(({ id }) => id)
      expect(all).toHaveLength(13)
      const seen: string[] = []
      let cursor: string | undefined
      let pages = 0
      do {
        const query: Query = { limit: '3', ...(cursor !== undefined && { cursor }) } as Query
        const { data, pagination } = await client.call(api.devices.list, { query })
        seen.push(...data.map(({ id }) => id))
        expect(pagination.page).toBe(cursor === undefined ? 1 : undefined)
        expect(pagination.total).toBe(cursor === undefined ? 13 : undefined)
        cursor = pagination.nextCursor ?? undefined
        await enroll(`aaa-${pages}`)
        await enroll(`zzz-${pages}`)
        pages++
      } while (cursor !== undefined && pages < 20)
      expect(new Set(seen).size).toBe(seen.length)
      expect(seen.filter((id) => all.includes(id))).toEqual(all)
    })

    it('shows nothing of other tenants with a cursor of theirs', async () => {
      const { service, tokens, client, enroll } = await begin(open)
      await enroll('aaa')
      const { pagination } = await client.call(api.devices.list, { query: { limit: '1' } as Query })
      const query = { cursor: pagination.nextCursor! }
      const { data } = await service.client(tokens.garage).call(api.devices.list, { query })
      expect(data.map(({ hostname }) => hostname)).toEqual(['garage-pc'])
      for (const cursor of ['', 'x', Buffer.from('["a"]').toString('base64url'), 'WyJcdTAwMDAiLCJhIl0']) {
        const wrong = client.call(api.devices.list, { query: { cursor } })
        await expect(wrong).rejects.toMatchObject({ status: 400, code: 'invalid_request' })
      }
    })

    it('reads a page with one query, tags and custom fields included', async () => {
      const { service, tokens, client, bakery } = await begin(open)
      const enroll = await enroller(service, tokens.bakery)
      for (const name of ['a', 'b', 'c']) {
        const { deviceId: id } = await enroll(name)
        await client.call(api.devices.update, {
          params: { id },
          body: { tags: [name, 'all'], customFields: { name } },
        })
      }
      const { queries, db } = counting(service.storage)
      const { data } = await listDevices(db, organizationScope(bakery.id), { page: 1, limit: 50 })
      expect(data.map(({ tags, customFields }) => [tags, customFields])).toEqual([
        [['a', 'all'], { name: 'a' }],
        [['all', 'b'], { name: 'b' }],
        [[], {}],
        [['all', 'c'], { name: 'c' }],
      ])
      expect(queries()).toBe(1)
    })

    it.runIf(kind === 'sqlite')('uses an index for any page', async () => {
      const { service, bakery } = await begin(open)
      const cursor = Buffer.from(JSON.stringify(['m', 'm'])).toString('base64url')
      const { plans, db } = counting(service.storage)
      await listDevices(db, organizationScope(bakery.id), { page: 1, limit: 50, cursor })
      await listDevices(db, { kind: 'system' }, { page: 1, limit: 50, cursor })
      expect(await plans()).toEqual([
        expect.stringContaining('devices_org (org_id=? AND (hostname,id)>(?,?))'),
        expect.stringContaining('devices_hostname ((hostname,id)>(?,?))'),
      ])
    })
  })
})

/** The read connection with a count of its queries. */
function counting({ read }: Storage) {
  const seen: { sql: string; parameters: readonly unknown[] }[] = []
  const executor = read.getExecutor()
  const counted = new Proxy(executor, {
    get: (target, key) => {
      if (key === 'executeQuery') {
        return (query: { sql: string; parameters: readonly unknown[] }) => {
          seen.push(query)
          return target.executeQuery(query as never)
        }
      }
      const value = Reflect.get(target, key) as unknown
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const db = new Proxy(read, {
    get: (target, key) => {
      if (key === 'getExecutor') return () => counted
      const value = Reflect.get(target, key) as unknown
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const plans = async () =>
    Promise.all(
      seen.map(async (query) => {
        const { rows } = await executor.executeQuery<{ detail: string }>({
          ...query,
          sql: `explain query plan ${query.sql}`,
        } as never)
        return rows.map(({ detail }) => detail).join('\n')
      }),
    )
  return { db, queries: () => seen.length, plans }
}
