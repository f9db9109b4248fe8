import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { addPartnerUser } from '../world.ts'
import { startWithHistory } from './history-fixture.ts'

const acmeWith = (more: Record<string, unknown>) => ({ partners: [{ slug: 'acme', ...more }] })
const adopt = { adopt: true }

inTurn((open) => {
  const start = async () => {
    const stage = await startWithHistory(open)
    const { client } = stage.acme
    const mine = () => client.call(api.partners.me)
    const { organizationOrder } = await client.call(api.orgs.order, {
      body: { organizationOrder: [stage.world.orgs.garage.id] },
    })
    return { ...stage, mine, organizationOrder }
  }

  describe('the partner of the files', () => {
    it('has its name, its address and its settings in them', async () => {
      const { acme, mine, organizationOrder } = await start()
      const before = await mine()
      const files = acmeWith({
        billingEmail: 'bills@acme.example',
        settings: { timezone: 'Europe/Paris', businessHours: { preset: 'extended' } },
      })
      const { changes } = await acme.apply(files, adopt)
      expect(changes).toMatchObject([
        { action: 'adopt', section: 'partners', org: null, name: 'acme', refused: null },
        {
          action: 'update',
          section: 'partners',
          id: before.id,
          before: { billingEmail: null, settings: {} },
        },
      ])
      expect(await mine()).toMatchObject({
        name: before.name,
        billingEmail: 'bills@acme.example',
        settings: {
          timezone: 'Europe/Paris',
          businessHours: { preset: 'extended' },
          organizationOrder,
        },
      })
      expect((await acme.plan(files)).changes).toEqual([])
      const { document, uncovered } = await acme.exported()
      expect(document.partners).toEqual([
        {
          slug: 'acme',
          name: before.name,
          billingEmail: 'bills@acme.example',
          settings: { timezone: 'Europe/Paris', businessHours: { preset: 'extended' } },
        },
      ])
      expect((await acme.plan({ partners: document.partners! })).changes).toEqual([])
      expect(uncovered.map(({ what }) => what)).toContain('partners.settings.organizationOrder')
    })

    it('keeps the settings that they leave out, and loses those that they say are null', async () => {
      const { acme, mine, organizationOrder } = await start()
      await acme.apply(acmeWith({ settings: { timezone: 'UTC', contact: { name: 'Ada' } } }), adopt)
      await acme.apply(acmeWith({ settings: { timezone: null, contact: { phone: '1' } } }))
      expect((await mine()).settings).toEqual({ contact: { name: 'Ada', phone: '1' }, organizationOrder })
    })

    it('is changed by one set, and by files of a whole partner alone', async () => {
      const { acme, by, world, bakery } = await start()
      await expect(acme.plan(acmeWith({ name: 'A' }))).rejects.toMatchObject({
        details: [
          {
            path: 'body.document.partners.0',
            message: 'exists and belongs to no set: --adopt takes it over',
          },
        ],
      })
      await acme.apply(acmeWith({}), adopt)
      await expect(acme.plan(acmeWith({}), { set: 'other', adopt: true })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('belongs to the set "default"') }],
      })
      for (const one of [bakery, by(world.tokens.acme, world.orgs.bakery.id)]) {
        await expect(one.plan(acmeWith({}))).rejects.toMatchObject({
          details: [
            {
              path: 'body.document.partners',
              message: 'is of the partner, and these files are of one organization: leave it out',
            },
          ],
        })
        expect((await one.exported()).document.partners).toBeUndefined()
      }
    })

    it('is neither another one nor called otherwise', async () => {
      const { acme } = await start()
      await acme.apply(acmeWith({}), adopt)
      for (const slug of ['harbor', 'nobody'])
        await expect(acme.plan({ partners: [{ slug }] }, adopt)).rejects.toMatchObject({
          details: [
            {
              path: 'body.document.partners.0',
              message: 'is not the partner of these files, which is "acme"',
            },
          ],
        })
      await expect(acme.plan({ partners: [{ slug: 'apex', renamedFrom: 'acme' }] })).rejects.toMatchObject({
        details: [{ path: 'body.document.partners.0.slug', message: 'cannot be changed by a file' }],
      })
      const fixed = { maxDevices: 9, plan: 'pro', ssoConfig: {}, status: 'active' }
      await expect(acme.plan(acmeWith(fixed))).rejects.toMatchObject({
        details: Object.keys(fixed).map((field) => ({
          path: `body.document.partners.0.${field}`,
          message: 'is not a known field',
        })),
      })
      const order = { settings: { organizationOrder: [] } }
      await expect(acme.plan(acmeWith(order))).rejects.toMatchObject({
        details: [
          {
            path: 'body.document.partners.0.settings.organizationOrder',
            message: 'is not a known field',
          },
        ],
      })
    })

    it('stays when no file has it any more, and belongs to no set then', async () => {
      const { acme, service, mine } = await start()
      await acme.apply(acmeWith({ name: 'Apex' }), adopt)
      const { left, changes } = await acme.plan({ partners: [] })
      expect({ left, changes }).toEqual({
        left: [{ section: 'partners', org: null, name: 'acme' }],
        changes: [],
      })
      const news = await newEntries(service)
      const released = await acme.apply({ partners: [] }, { prune: true })
      expect(released.changes).toMatchObject([{ action: 'release', name: 'acme', refused: null }])
      expect(await news()).toMatchObject([{ action: 'config.release' }, { action: 'config.apply' }])
      expect((await mine()).name).toBe('Apex')
      expect((await acme.plan({ partners: [] }, { prune: true })).changes).toEqual([])
      const { version } = await acme.planBack(released.applyId)
      await acme.rollBack(released.applyId, version)
      expect((await acme.plan(acmeWith({ name: 'Apex' }))).changes).toEqual([])
    })

    it('is as before after a rollback', async () => {
      const { acme, mine } = await start()
      const { updatedAt: _, ...before } = await mine()
      const { applyId } = await acme.apply(acmeWith({ name: 'Apex', settings: { timezone: 'UTC' } }), adopt)
      const { version, changes } = await acme.planBack(applyId)
      expect(changes.map(({ action }) => action)).toEqual(['update', 'release'])
      await acme.rollBack(applyId, version)
      expect(await mine()).toMatchObject(before)
      expect(await acme.sets()).toEqual([])
    })

    it('gets its business hours back as they were, whatever of a day changed', async () => {
      const { acme, mine } = await start()
      const hours = (monday: object) =>
        acmeWith({ settings: { businessHours: { preset: 'custom', custom: { monday } } } })
      const day = { start: '08:00', end: '17:00', closed: true }
      await acme.apply(hours(day), adopt)
      const { settings } = await mine()
      for (const other of [{ start: '09:00', end: '18:00' }, { end: '18:00' }, { closed: false }]) {
        const { applyId } = await acme.apply(hours({ ...day, ...other }))
        const { version } = await acme.planBack(applyId)
        await acme.rollBack(applyId, version)
        expect((await mine()).settings).toEqual(settings)
      }
      // A day is replaced as a whole.
      await acme.apply(hours({ start: '08:00', end: '17:00' }))
      expect((await mine()).settings.businessHours).toMatchObject({ custom: { monday: { closed: false } } })
    })

    it('is changed by whoever may change all of it, and shown to others', async () => {
      const { by, service, world, acme } = await start()
      await acme.apply(acmeWith({}), adopt)
      const { acme: partnerId } = world.partners
      const some = by(
        await addPartnerUser(service, 'some', partnerId, [world.orgs.bakery.id], 'Partner Admin'),
      )
      const before = await dump(service.storage)
      const { changes, version } = await some.plan(acmeWith({ name: 'Apex' }))
      expect(changes).toMatchObject([{ action: 'update', refused: expect.stringMatching(/organization/) }])
      await expect(some.apply(acmeWith({ name: 'Apex' }), {}, version)).rejects.toMatchObject({ status: 403 })
      expect(changed(before, await dump(service.storage))).toEqual([])
    })

    it('is changed by a system administrator who names it, and the audit log names who did', async () => {
      const { by, world, service, acme, mine } = await start()
      const { acme: partnerId } = world.partners
      const system = by(world.tokens.system, { partnerId })
      expect((await system.exported()).document.partners).toMatchObject([{ slug: 'acme' }])
      await system.apply(acmeWith({ name: 'Apex', settings: { timezone: 'UTC' } }), adopt)
      expect(await mine()).toMatchObject({ name: 'Apex', settings: { timezone: 'UTC' } })
      await acme.client.call(api.partners.changeMe, { body: { settings: { timezone: 'Asia/Tokyo' } } })
      const { changes } = await system.plan(acmeWith({ settings: { timezone: 'UTC' } }), { culprits: true })
      const byAcme = { field: 'settings', by: 'acme-admin@example.com', action: 'partner.settings.update' }
      expect(changes).toMatchObject([{ action: 'update', culprits: [byAcme] }])
      // Somebody else has changed other settings since.
      const other = service.client(await addPartnerUser(service, 'other', partnerId, 'all'))
      const { id } = world.orgs.garage
      await other.call(api.partners.changeMe, {
        body: { settings: { organizationOrder: [id], contact: { name: 'Ada' } } },
      })
      const again = await system.plan(acmeWith({ settings: { timezone: 'UTC' } }), { culprits: true })
      expect(again.changes).toMatchObject([{ culprits: [byAcme] }])
      const document = acmeWith({ name: 'Two' })
      const { version, plannedAt } = await system.plan(document)
      await other.call(api.partners.changeMe, { body: { name: 'Three' } })
      await expect(
        system.client.call(api.configuration.apply, {
          query: { partnerId },
          body: { document, version, plannedAt },
        }),
      ).rejects.toMatchObject({
        status: 409,
        message: expect.stringContaining('partners "acme" (by other@example.com'),
      })
      const globex = by(world.tokens.system, { partnerId: world.partners.globex })
      await expect(globex.plan(acmeWith({ name: 'Other' }), adopt)).rejects.toMatchObject({ status: 400 })
    })
  })
})
