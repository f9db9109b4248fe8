import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { OrganizationChange } from '../../src/tenancy/contract.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, addPartnerUser, buildWorld } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  describe('an organization', () => {
    it('is changed and deleted by the system and by users of its partner who can see it', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const rename = (token: string, id: string) =>
        service.client(token).call(api.orgs.update, { params: { id }, body: { name: 'New name' } })
      const remove = (token: string, id: string) =>
        service.client(token).call(api.orgs.remove, { params: { id } })
      for (const act of [rename, remove]) {
        for (const token of [tokens.acmeNone, tokens.globex]) {
          await expect(act(token, orgs.bakery.id)).rejects.toEqual(refused(404, 'not_found'))
        }
        await expect(act(tokens.acmeBakery, orgs.garage.id)).rejects.toEqual(refused(404, 'not_found'))
        await expect(act(tokens.bakery, orgs.bakery.id)).rejects.toEqual(refused(403, 'scope_not_allowed'))
      }
      for (const token of [tokens.system, tokens.acme, tokens.acmeBakery]) {
        expect((await rename(token, orgs.bakery.id)).name).toBe('New name')
      }
      expect(await remove(tokens.acmeBakery, orgs.bakery.id)).toMatchObject({ success: true })
      expect(await remove(tokens.acme, orgs.garage.id)).toMatchObject({ success: true })
      expect(await remove(tokens.system, orgs.harbor.id)).toMatchObject({ success: true })
    })

    it('needs organizations:delete to be deleted', async () => {
      const service = await startService(open)
      const { partners, orgs } = await buildWorld(service)
      const token = await addPartnerUser(service, 'tech', partners.acme, 'all', 'Partner Technician')
      const call = service.client(token).call(api.orgs.remove, { params: { id: orgs.bakery.id } })
      await expect(call).rejects.toMatchObject({
        status: 403,
        details: { required: 'organizations:delete' },
      })
    })

    it('is changed field by field, but never moves to another partner', async () => {
      const service = await startService(open)
      const { partners, orgs, tokens } = await buildWorld(service)
      const acme = service.client(tokens.acme)
      const params = { id: orgs.bakery.id }
      const news = await newEntries(service)
      const body = {
        name: 'Blue Bakery',
        slug: 'blue-bakery',
        type: 'internal',
        status: 'trial',
        maxDevices: 7,
        contractStart: '2026-01-01T00:00:00.000Z',
        contractEnd: '2027-01-01T00:00:00.000Z',
        billingContact: { name: 'Ada', floors: [1, 2] },
        ssoConfig: { issuer: 'https://id.example' },
      } satisfies OrganizationChange
      const after = await acme.call(api.orgs.update, { params, body })
      expect(after).toMatchObject({ ...body, partnerId: partners.acme })
      expect(await acme.call(api.orgs.show, { params })).toEqual(after)
      const [entry] = await news()
      expect(entry).toMatchObject({
        action: 'organization.update',
        orgId: orgs.bakery.id,
        resourceName: 'Blue Bakery',
        details: {
          before: { name: 'bakery', status: 'active', maxDevices: null, billingContact: null },
          after: { name: 'Blue Bakery', status: 'trial', maxDevices: 7 },
        },
      })
      const cleared = await acme.call(api.orgs.update, {
        params,
        body: { ssoConfig: null, contractEnd: null },
      })
      expect(cleared).toMatchObject({ ssoConfig: null, contractEnd: null, maxDevices: 7 })

      const faults: [object, string][] = [
        [{ partnerId: partners.globex }, 'body.partnerId'],
        [{ status: 'asleep' }, 'body.status'],
        [{ maxDevices: -1 }, 'body.maxDevices'],
        [{ slug: 'Not A Slug' }, 'body.slug'],
        [{ billingContact: { a: 'x'.repeat(20_000) } }, 'body.billingContact'],
        [{ settings: { security: { requireMfa: 'yes' } } }, 'body.settings.security.requireMfa'],
        [
          { settings: { security: { allowedMfaMethods: { sms: 1 } } } },
          'body.settings.security.allowedMfaMethods.sms',
        ],
        [{}, 'body'],
      ]
      for (const [change, path] of faults) {
        await expect(acme.request(api.orgs.update, { params, body: change })).rejects.toMatchObject({
          status: 400,
          details: [{ path }],
        })
      }
    })

    it('merges its settings, and accepts unknown ones', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const params = { id: orgs.bakery.id }
      const set = async (settings: Record<string, unknown>) =>
        (await service.client(tokens.acme).request(api.orgs.update, { params, body: { settings } })) as {
          settings: unknown
        }
      await set({ security: { requireMfa: false, sessionTimeout: 30 }, branding: { color: 'blue' } })
      await set({ security: { allowedMfaMethods: { sms: false } } })
      expect((await set({ branding: null, labels: [1] })).settings).toEqual({
        security: { requireMfa: false, sessionTimeout: 30, allowedMfaMethods: { sms: false } },
        labels: [1],
      })
      await set({ a: 'x'.repeat(10_000) })
      await expect(set({ b: 'x'.repeat(10_000) })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.settings' }],
      })
    })

    it('has a unique slug within its partner, until it is deleted', async () => {
      const service = await startService(open)
      const { partners, orgs, tokens } = await buildWorld(service)
      const system = service.client(tokens.system)
      const create = (partnerId: string, slug: string) =>
        system.call(api.orgs.create, { body: { partnerId, name: slug, slug } })
      await expect(create(partners.acme, 'bakery')).rejects.toEqual(refused(409, 'slug_taken'))
      expect((await create(partners.globex, 'bakery')).slug).toBe('bakery')
      const take = () =>
        system.call(api.orgs.update, { params: { id: orgs.garage.id }, body: { slug: 'bakery' } })
      await expect(take()).rejects.toEqual(refused(409, 'slug_taken'))
      await system.call(api.orgs.remove, { params: { id: orgs.bakery.id } })
      expect((await take()).slug).toBe('bakery')
      await system.call(api.orgs.remove, { params: { id: orgs.garage.id } })
      expect((await create(partners.acme, 'bakery')).slug).toBe('bakery')
    })

    it('is listed to its own users even without permission to read organizations', async () => {
      const service = await startService(open)
      const { tokens, orgs } = await buildWorld(service)
      const auditor = await addOrgUser(service, 'auditor', orgs.bakery.id, { role: 'Auditor' })
      for (const token of [tokens.bakeryViewer, auditor]) {
        const client = service.client(token)
        expect((await client.call(api.orgs.list)).data.map(({ name }) => name)).toEqual(['bakery'])
      }
    })

    it('disappears from lists and details when deleted; its sites stay', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const params = { id: orgs.bakery.id }
      const news = await newEntries(service)
      await service.client(tokens.acme).call(api.orgs.remove, { params })
      expect(await news()).toMatchObject([
        {
          action: 'organization.delete',
          orgId: orgs.bakery.id,
          resourceName: 'bakery',
          details: { before: { status: 'active' }, after: { status: 'churned' } },
        },
      ])
      for (const token of [tokens.system, tokens.acme, tokens.acmeBakery]) {
        const client = service.client(token)
        const names = (await client.call(api.orgs.list)).data.map(({ name }) => name)
        expect(names).not.toContain('bakery')
        expect((await client.call(api.orgs.page)).pagination.total).toBe(names.length)
        for (const call of [
          () => client.call(api.orgs.show, { params }),
          () => client.call(api.orgs.update, { params, body: { name: 'Back' } }),
          () => client.call(api.orgs.remove, { params }),
        ]) {
          await expect(call()).rejects.toEqual(refused(404, 'not_found'))
        }
      }
      const kept = service.storage.read
        .selectFrom('sites')
        .select('name')
        .where('org_id', '=', orgs.bakery.id)
      expect(await kept.execute()).toEqual([{ name: 'bakery site' }])
    })
  })

  describe('the order of organizations', () => {
    it('is normalized, stored, and returned with the partner', async () => {
      const service = await startService(open)
      const { partners, orgs, tokens } = await buildWorld(service)
      const acme = service.client(tokens.acme)
      const { id: third } = await acme.call(api.orgs.create, { body: { name: 'Third', slug: 'third' } })
      const news = await newEntries(service)
      const wanted = [third, orgs.harbor.id, '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11', third]
      const first = await acme.call(api.orgs.order, { body: { organizationOrder: wanted } })
      expect(first).toEqual({ organizationOrder: [third, orgs.bakery.id, orgs.garage.id] })
      expect((await acme.call(api.partners.me)).settings).toEqual(first)
      expect(await news()).toMatchObject([
        {
          action: 'partner.organizationOrder.update',
          resourceType: 'partner',
          resourceId: partners.acme,
          details: { after: { settings: first } },
        },
      ])
      await acme.call(api.orgs.remove, { params: { id: orgs.garage.id } })
      const second = await acme.call(api.orgs.order, { body: { orderedIds: [orgs.garage.id] } })
      expect(second).toEqual({ organizationOrder: [orgs.bakery.id, third] })
    })

    it('is for users who see the whole partner, and has a maximum length', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const order = (token: string, body: object) => service.client(token).request(api.orgs.order, { body })
      const body = { organizationOrder: [orgs.bakery.id] }
      for (const token of [tokens.acmeBakery, tokens.acmeNone]) {
        await expect(order(token, body)).rejects.toEqual(refused(403, 'partner_access_limited'))
      }
      for (const token of [tokens.system, tokens.bakery]) {
        await expect(order(token, body)).rejects.toEqual(refused(403, 'scope_not_allowed'))
      }
      const fullOrder = Array.from({ length: 10_000 }, () => orgs.garage.id)
      expect(await order(tokens.acme, { organizationOrder: fullOrder })).toEqual({
        organizationOrder: [orgs.garage.id, orgs.bakery.id],
      })
      for (const wrong of [
        {},
        { organizationOrder: [...fullOrder, orgs.garage.id] },
        { organizationOrder: null },
      ]) {
        await expect(order(tokens.acme, wrong)).rejects.toMatchObject({
          status: 400,
          details: [{ path: 'body.organizationOrder' }],
        })
      }
    })
  })
})
