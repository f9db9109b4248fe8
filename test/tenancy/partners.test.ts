import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { PartnerChange } from '../../src/tenancy/contract.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addPartnerUser, buildWorld } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  describe('a partner', () => {
    it('is changed field by field, and the audit log records the changes', async () => {
      const service = await startService(open)
      const { partners, tokens } = await buildWorld(service)
      const system = service.client(tokens.system)
      const params = { id: partners.acme }
      const news = await newEntries(service)
      const body = {
        name: 'Acme IT',
        slug: 'acme-it',
        type: 'enterprise',
        plan: 'pro',
        status: 'active',
        maxOrganizations: 5,
        maxDevices: 100,
        billingEmail: 'billing@acme.example',
        ssoConfig: { issuer: 'https://id.example' },
      } satisfies PartnerChange
      const after = await system.call(api.partners.update, { params, body })
      expect(after).toMatchObject(body)
      expect(await system.call(api.partners.show, { params })).toEqual(after)
      expect(await news()).toMatchObject([
        {
          action: 'partner.update',
          resourceId: partners.acme,
          orgId: null,
          details: {
            before: { name: 'acme', slug: 'acme', type: 'msp', plan: 'free', maxDevices: null },
            after: { name: 'Acme IT', slug: 'acme-it', type: 'enterprise', ssoConfig: '********' },
          },
        },
      ])
      await expect(system.call(api.partners.update, { params, body: {} })).rejects.toMatchObject({
        status: 400,
        message: 'No updates provided',
      })
      const taken = system.call(api.partners.update, { params, body: { slug: 'globex' } })
      await expect(taken).rejects.toEqual(refused(409, 'slug_taken'))
      expect(await news()).toEqual([])
    })

    it('is administered in system scope only', async () => {
      const service = await startService(open)
      const { partners, tokens } = await buildWorld(service)
      const params = { id: partners.acme }
      for (const token of [tokens.acme, tokens.acmeBakery, tokens.acmeNone, tokens.bakery]) {
        const client = service.client(token)
        const calls = [
          () => client.call(api.partners.list),
          () => client.call(api.partners.show, { params }),
          () => client.call(api.partners.update, { params, body: { name: 'Mine' } }),
          () => client.call(api.partners.remove, { params }),
          () => client.call(api.partners.create, { body: { name: 'New', slug: 'new' } }),
        ]
        for (const call of calls) await expect(call()).rejects.toEqual(refused(403, 'scope_not_allowed'))
      }
    })

    it('is removed when deleted, with its organizations, and frees its slug', async () => {
      const service = await startService(open)
      const { partners, orgs, tokens } = await buildWorld(service)
      const system = service.client(tokens.system)
      const params = { id: partners.acme }
      const news = await newEntries(service)
      expect(await system.call(api.partners.remove, { params })).toMatchObject({ success: true })
      expect(await news()).toMatchObject([
        { action: 'partner.delete', resourceName: 'acme', details: { organizations: 2 } },
      ])
      const calls = [
        () => system.call(api.partners.show, { params }),
        () => system.call(api.partners.update, { params, body: { name: 'Back' } }),
        () => system.call(api.partners.remove, { params }),
        () => system.call(api.orgs.show, { params: { id: orgs.bakery.id } }),
        () => system.call(api.sites.show, { params: { id: orgs.bakery.siteId } }),
        () => system.call(api.orgs.create, { body: { partnerId: partners.acme, name: 'New', slug: 'new' } }),
      ]
      for (const call of calls) await expect(call()).rejects.toEqual(refused(404, 'not_found'))
      expect((await system.call(api.partners.list)).data.map(({ slug }) => slug)).toEqual(['globex'])
      expect((await system.call(api.orgs.list)).data.map(({ slug }) => slug)).toEqual(['harbor'])

      const again = await system.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
      const rows = await service.storage.read
        .selectFrom('partners')
        .select(['id', 'status', 'deleted_at'])
        .where('slug', '=', 'acme')
        .orderBy('created_at')
        .execute()
      expect(rows).toEqual([
        { id: partners.acme, status: 'churned', deleted_at: expect.any(String) },
        { id: again.id, status: 'active', deleted_at: null },
      ])
    })
  })

  describe('the partner of the caller', () => {
    it('is visible to all its users, with only the organizations they see in its order', async () => {
      const service = await startService(open)
      const { partners, orgs, tokens } = await buildWorld(service)
      const client = (token: string) => service.client(token)
      const organizationOrder = [orgs.garage.id, orgs.bakery.id]
      await client(tokens.acme).call(api.partners.changeMe, { body: { settings: { organizationOrder } } })
      const orderFor = async (token: string) => {
        const partner = await client(token).call(api.partners.me)
        expect(partner).toMatchObject({ id: partners.acme, slug: 'acme' })
        return partner.settings.organizationOrder
      }
      expect(await orderFor(tokens.acme)).toEqual(organizationOrder)
      expect(await orderFor(tokens.acmeBakery)).toEqual([orgs.bakery.id])
      expect(await orderFor(tokens.acmeNone)).toEqual([])
      await client(tokens.acme).call(api.orgs.remove, { params: { id: orgs.bakery.id } })
      expect(await orderFor(tokens.acme)).toEqual([orgs.garage.id])
      for (const token of [tokens.system, tokens.harbor]) {
        await expect(client(token).call(api.partners.me)).rejects.toEqual(refused(403, 'scope_not_allowed'))
      }
    })

    it('lets users who see all of it change only name, billing email and settings', async () => {
      const service = await startService(open)
      const { partners, tokens } = await buildWorld(service)
      const acme = service.client(tokens.acme)
      const news = await newEntries(service)
      const settings = { timezone: 'Europe/Paris', contact: { name: 'Ada' } }
      const changed = await acme.call(api.partners.changeMe, { body: { name: 'Acme IT', settings } })
      expect(changed).toMatchObject({ id: partners.acme, name: 'Acme IT', settings, plan: 'free' })
      await acme.call(api.partners.changeMe, { body: { billingEmail: 'b@acme.example' } })
      expect((await news()).map(({ action, details }) => [action, details])).toEqual([
        [
          'partner.settings.update',
          { before: { name: 'acme', settings: {} }, after: { name: 'Acme IT', settings } },
        ],
        ['partner.update', { before: { billingEmail: null }, after: { billingEmail: 'b@acme.example' } }],
      ])
      for (const body of [{ plan: 'pro' }, { status: 'churned' }, { slug: 'x' }, { maxDevices: 1 }, {}]) {
        const call = acme.request(api.partners.changeMe, { body })
        await expect(call).rejects.toEqual(refused(400, 'invalid_request'))
      }
      for (const token of [tokens.acmeBakery, tokens.acmeNone]) {
        const call = service.client(token).call(api.partners.changeMe, { body: { name: 'Mine' } })
        await expect(call).rejects.toEqual(refused(403, 'partner_access_limited'))
      }
      const viewer = await addPartnerUser(service, 'viewer', partners.acme, 'all', 'Partner Viewer')
      const call = service.client(viewer).call(api.partners.changeMe, { body: { name: 'Mine' } })
      await expect(call).rejects.toEqual(refused(403, 'forbidden'))
    })

    it('merges its settings: missing ones stay, null removes, for the system too', async () => {
      const service = await startService(open)
      const { partners, tokens } = await buildWorld(service)
      const acme = service.client(tokens.acme)
      const system = service.client(tokens.system)
      const monday = { start: '08:00', end: '17:30', closed: false }
      const sunday = { start: '00:00', end: '00:00', closed: true }
      const set = async (settings: object, by = acme) => {
        const changed =
          by === acme
            ? await by.request(api.partners.changeMe, { body: { settings } })
            : await by.request(api.partners.update, { params: { id: partners.acme }, body: { settings } })
        return (changed as { settings: unknown }).settings
      }
      await set({ timezone: 'UTC', dateFormat: 'DD/MM/YYYY', timeFormat: '24h', language: 'en' })
      await set({ businessHours: { preset: 'custom', custom: { monday, sunday } }, contact: { name: 'Ada' } })
      await set({ businessHours: { custom: { monday: { start: '09:00', end: '17:00' } } } })
      await set({ contact: { email: 'ada@acme.example', phone: '+1 555', website: 'https://acme.example' } })
      expect(await set({ dateFormat: null, contact: { name: null } }, system)).toEqual({
        timezone: 'UTC',
        timeFormat: '24h',
        language: 'en',
        businessHours: {
          preset: 'custom',
          custom: { monday: { start: '09:00', end: '17:00', closed: false }, sunday },
        },
        contact: { email: 'ada@acme.example', phone: '+1 555', website: 'https://acme.example' },
      })
    })

    const wrong: [path: string, settings: object][] = [
      ['timezone', { timezone: 'Mars/Olympus' }],
      ['dateFormat', { dateFormat: 'YY/M/D' }],
      ['timeFormat', { timeFormat: '24' }],
      ['language', { language: 'de' }],
      ['security', { security: { requireMfa: true } }],
      ['businessHours.preset', { businessHours: { preset: 'sometimes' } }],
      ['businessHours.hours', { businessHours: { hours: 8 } }],
      ['businessHours.custom.caturday', { businessHours: { custom: { caturday: {} } } }],
      [
        'businessHours.custom.monday.start',
        { businessHours: { custom: { monday: { start: '8', end: '17:00' } } } },
      ],
      ['businessHours.custom.monday.end', { businessHours: { custom: { monday: { start: '08:00' } } } }],
      ['contact.email', { contact: { email: 'nobody' } }],
      ['contact.fax', { contact: { fax: '1' } }],
      ['organizationOrder.0', { organizationOrder: ['nope'] }],
    ]
    it('refuses invalid settings, each with its path', async () => {
      const service = await startService(open)
      const { partners, tokens } = await buildWorld(service)
      const faults = async (call: Promise<unknown>) => {
        const failure = await call.then(
          () => ({ status: 200, details: [] }),
          (error: { status: number; details: { path: string }[] }) => error,
        )
        return [failure.status, failure.details.map(({ path }) => path)]
      }
      for (const [path, settings] of wrong) {
        const own = service.client(tokens.acme).request(api.partners.changeMe, { body: { settings } })
        expect(await faults(own)).toEqual([400, [`body.settings.${path}`]])
        const system = service
          .client(tokens.system)
          .request(api.partners.update, { params: { id: partners.acme }, body: { settings } })
        expect(await faults(system)).toEqual([400, [`body.settings.${path}`]])
      }
      const all = Object.assign({}, ...wrong.slice(0, 4).map(([, settings]) => settings))
      const call = service.client(tokens.acme).request(api.partners.changeMe, { body: { settings: all } })
      expect(await faults(call)).toEqual([400, wrong.slice(0, 4).map(([path]) => `body.settings.${path}`)])
    })
  })
})
