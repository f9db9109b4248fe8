import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'

/** System; users of a partner with all, one and no organizations; another partner; an organization. */
const callers = ['system', 'acme', 'acmeBakery', 'acmeNone', 'globex', 'bakery'] as const

type Row = [
  call: string,
  statuses: number[],
  make: (client: Client, world: World, n: number) => Promise<unknown>,
]

/** Every row of the access tables except the deletions, which have their own tests. */
const rows: Row[] = [
  ['GET partners', [200, 403, 403, 403, 403, 403], (it) => it.call(api.partners.list)],
  [
    'POST partners',
    [200, 403, 403, 403, 403, 403],
    (it, _, n) => it.call(api.partners.create, { body: { name: 'New', slug: `new-${n}` } }),
  ],
  [
    'GET partners/:id',
    [200, 403, 403, 403, 403, 403],
    (it, { partners }) => it.call(api.partners.show, { params: { id: partners.acme } }),
  ],
  [
    'PATCH partners/:id',
    [200, 403, 403, 403, 403, 403],
    (it, { partners }) =>
      it.call(api.partners.update, { params: { id: partners.acme }, body: { plan: 'pro' } }),
  ],
  ['GET partners/me', [403, 200, 200, 200, 200, 403], (it) => it.call(api.partners.me)],
  [
    'PATCH partners/me',
    [403, 200, 403, 403, 200, 403],
    (it) => it.call(api.partners.changeMe, { body: { billingEmail: null } }),
  ],
  ['GET /orgs/', [200, 200, 200, 200, 200, 200], (it) => it.call(api.orgs.list)],
  ['GET organizations', [200, 200, 200, 200, 200, 403], (it) => it.call(api.orgs.page)],
  [
    'POST organizations',
    [200, 200, 200, 200, 403, 403],
    (it, { partners }, n) =>
      it.call(api.orgs.create, { body: { partnerId: partners.acme, name: 'New', slug: `new-${n}` } }),
  ],
  [
    'GET organizations/:id',
    [200, 200, 200, 404, 404, 403],
    (it, { orgs }) => it.call(api.orgs.show, { params: { id: orgs.bakery.id } }),
  ],
  [
    'PATCH organizations/:id',
    [200, 200, 200, 404, 404, 403],
    (it, { orgs }) => it.call(api.orgs.update, { params: { id: orgs.bakery.id }, body: { maxDevices: 9 } }),
  ],
  [
    'PATCH organizations/order',
    [403, 200, 403, 403, 200, 403],
    (it, { orgs }) => it.call(api.orgs.order, { body: { organizationOrder: [orgs.bakery.id] } }),
  ],
  [
    'GET sites?orgId',
    [200, 200, 200, 403, 403, 200],
    (it, { orgs }) => it.call(api.sites.list, { query: { orgId: orgs.bakery.id } }),
  ],
  [
    'GET sites?organizationId',
    [200, 200, 200, 403, 403, 200],
    (it, { orgs }) => it.call(api.sites.list, { query: { organizationId: orgs.bakery.id } }),
  ],
  ['GET sites', [200, 200, 200, 200, 200, 200], (it) => it.call(api.sites.list)],
  [
    'POST sites',
    [200, 200, 200, 403, 403, 200],
    (it, { orgs }) => it.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'New' } }),
  ],
  [
    'GET sites/:id',
    [200, 200, 200, 403, 403, 200],
    (it, { orgs }) => it.call(api.sites.show, { params: { id: orgs.bakery.siteId } }),
  ],
  [
    'PATCH sites/:id',
    [200, 200, 200, 403, 403, 200],
    (it, { orgs }) =>
      it.call(api.sites.update, { params: { id: orgs.bakery.siteId }, body: { timezone: 'Europe/Paris' } }),
  ],
]

inTurn((open) => {
  describe('tenancy', () => {
    it('is accessible to the documented callers, in every scope and with every orgAccess', async () => {
      const service = await startService(open)
      const world = await buildWorld(service)
      let n = 0
      for (const [call, statuses, make] of rows) {
        const found: number[] = []
        for (const caller of callers) {
          n += 1
          const status = await make(service.client(world.tokens[caller]), world, n).then(
            () => 200,
            (error: { status: number }) => error.status,
          )
          found.push(status)
        }
        expect([call, ...found]).toEqual([call, ...statuses])
      }
    })

    it('lists the sites of all visible organizations, and only those', async () => {
      const service = await startService(open)
      const { tokens } = await buildWorld(service)
      const names = async (token: string) =>
        (await service.client(token).call(api.sites.list)).data.map(({ name }) => name)
      expect(await names(tokens.system)).toEqual(['bakery site', 'garage site', 'harbor site'])
      expect(await names(tokens.acme)).toEqual(['bakery site', 'garage site'])
      expect(await names(tokens.acmeBakery)).toEqual(['bakery site'])
      expect(await names(tokens.acmeNone)).toEqual([])
      expect(await names(tokens.bakery)).toEqual(['bakery site'])
    })

    it('clamps pages that are out of range', async () => {
      const service = await startService(open)
      const { partners, tokens } = await buildWorld(service)
      const system = service.client(tokens.system)
      for (const entry of [api.partners.list, api.orgs.page, api.sites.list]) {
        const at = async (page: string, limit: string) => {
          const reply = await system.request(entry, { query: { page, limit } })
          return (reply as { pagination: { page: number; limit: number } }).pagination
        }
        expect(await at('0', '1000')).toMatchObject({ page: 1, limit: 100 })
        expect(await at('-5', '0')).toMatchObject({ page: 1, limit: 1 })
        expect(await system.request(entry)).toMatchObject({ pagination: { page: 1, limit: 50 } })
      }
      const ofAcme = await system.call(api.orgs.page, { query: { partnerId: partners.acme } })
      expect([ofAcme.data.map(({ slug }) => slug), ofAcme.pagination.total]).toEqual([
        ['bakery', 'garage'],
        2,
      ])
    })

    it('adds a new organization to the access of its creator, with the documented errors', async () => {
      const service = await startService(open)
      const { partners, tokens } = await buildWorld(service)
      const create = (token: string, body: object) =>
        service.client(token).request(api.orgs.create, { body: { name: 'New', slug: 'new', ...body } })
      await expect(create(tokens.system, {})).rejects.toMatchObject({
        status: 400,
        message: 'partnerId is required for system scope',
      })
      await expect(create(tokens.acme, { partnerId: partners.globex })).rejects.toMatchObject({ status: 403 })
      await create(tokens.acmeBakery, {})
      const { data } = await service.client(tokens.acmeBakery).call(api.orgs.list)
      expect(data.map(({ slug }) => slug).sort()).toEqual(['bakery', 'new'])
    })
  })
})
