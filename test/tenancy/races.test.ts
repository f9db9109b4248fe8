import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

const many = <T>(count: number, call: (n: number) => Promise<T>) =>
  Promise.allSettled(Array.from({ length: count }, (_, n) => call(n)))

/** 200, or the error code. */
const outcome = (one: PromiseSettledResult<unknown>): unknown =>
  one.status === 'fulfilled' ? 200 : (one.reason as { code: string }).code

inTurn((open) => {
  it('only one of several concurrent requests gets a slug', async () => {
    const service = await startService(open)
    const { partners, orgs, tokens } = await buildWorld(service)
    const system = service.client(tokens.system)
    const created = await many(8, (n) =>
      system.call(api.orgs.create, { body: { partnerId: partners.acme, name: `Org ${n}`, slug: 'same' } }),
    )
    expect(created.map(outcome).sort()).toEqual([200, ...Array(7).fill('slug_taken')])
    const renamed = await many(2, (n) =>
      system.call(api.orgs.update, {
        params: { id: [orgs.bakery, orgs.garage][n]!.id },
        body: { slug: 'other' },
      }),
    )
    expect(renamed.map(outcome).sort()).toEqual([200, 'slug_taken'])
    const partnersMade = await many(6, () =>
      system.call(api.partners.create, { body: { name: 'New', slug: 'new' } }),
    )
    expect(partnersMade.map(outcome).sort()).toEqual([200, ...Array(5).fill('slug_taken')])
  })

  it('nothing is created in a partner or an organization that is deleted concurrently', async () => {
    const service = await startService(open)
    const { partners, orgs, tokens } = await buildWorld(service)
    const system = service.client(tokens.system)
    const sites = many(12, (n) =>
      system.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: `Site ${n}` } }),
    )
    await system.call(api.orgs.remove, { params: { id: orgs.bakery.id } })
    const made = (await sites).map(outcome)
    expect(made.filter((one) => one !== 200 && one !== 'not_found')).toEqual([])
    const kept = await service.storage.read
      .selectFrom('sites')
      .select('id')
      .where('org_id', '=', orgs.bakery.id)
      .execute()
    expect(kept).toHaveLength(1 + made.filter((one) => one === 200).length)

    const organizations = many(12, (n) =>
      system.call(api.orgs.create, {
        body: { partnerId: partners.globex, name: `Org ${n}`, slug: `o-${n}` },
      }),
    )
    await system.call(api.partners.remove, { params: { id: partners.globex } })
    expect((await organizations).map(outcome).filter((one) => one !== 200 && one !== 'not_found')).toEqual([])
    const alive = await service.storage.read
      .selectFrom('organizations')
      .select('id')
      .where('partner_id', '=', partners.globex)
      .where('deleted_at', 'is', null)
      .execute()
    expect(alive).toEqual([])
  })

  it('a site is either deleted or referenced, never both, and without internal errors', async () => {
    const service = await startService(open)
    const { orgs, tokens } = await buildWorld(service)
    const bakery = service.client(tokens.bakery)
    for (let round = 0; round < 8; round += 1) {
      const { id } = await bakery.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      const body = { orgId: orgs.bakery.id, siteId: id, name: 'desk' }
      const results = await Promise.allSettled([
        bakery.call(api.enrollmentKeys.create, { body }),
        bakery.call(api.sites.remove, { params: { id } }),
      ])
      const [created, removed] = results.map(outcome)
      expect([
        [200, 'site_in_use'],
        ['conflict', 200],
        ['invalid_request', 200],
      ]).toContainEqual([created, removed])
    }
  })

  it('concurrent changes of settings are all kept', async () => {
    const service = await startService(open)
    const { orgs, tokens } = await buildWorld(service)
    const params = { id: orgs.bakery.id }
    const results = await many(10, (n) =>
      service.client(tokens.acme).call(api.orgs.update, { params, body: { settings: { [`key${n}`]: n } } }),
    )
    expect(results.map(outcome)).toEqual(Array(10).fill(200))
    const { settings } = await service.client(tokens.acme).call(api.orgs.show, { params })
    expect(Object.keys(settings)).toHaveLength(10)
  })

  it('only one of several concurrent deletions of an organization or a site succeeds', async () => {
    const service = await startService(open)
    const { orgs, tokens } = await buildWorld(service)
    const acme = service.client(tokens.acme)
    const { id } = await acme.call(api.sites.create, { body: { orgId: orgs.garage.id, name: 'Annex' } })
    const sites = await many(5, () => acme.call(api.sites.remove, { params: { id } }))
    expect(sites.map(outcome).sort()).toEqual([200, ...Array(4).fill('site_access_denied')])
    const organizations = await many(5, () => acme.call(api.orgs.remove, { params: { id: orgs.bakery.id } }))
    expect(organizations.map(outcome).sort()).toEqual([200, ...Array(4).fill('not_found')])
  })
})
