import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, buildWorld } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  describe('a site', () => {
    it('is changed and deleted by users who have permission and can see it', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const system = service.client(tokens.system)
      const add = async () =>
        (await system.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })).id
      const annex = await add()
      const rename = (token: string, id: string) =>
        service.client(token).call(api.sites.update, { params: { id }, body: { name: 'Barn' } })
      const remove = (token: string, id: string) =>
        service.client(token).call(api.sites.remove, { params: { id } })
      const narrow = await addOrgUser(service, 'narrow', orgs.bakery.id, { siteIds: [orgs.bakery.siteId] })
      for (const act of [rename, remove]) {
        for (const token of [tokens.acmeNone, tokens.globex, tokens.garage, narrow]) {
          await expect(act(token, annex)).rejects.toEqual(refused(403, 'site_access_denied'))
        }
        await expect(act(tokens.bakeryViewer, annex)).rejects.toEqual(refused(403, 'forbidden'))
        await expect(act(tokens.system, orgs.bakery.id)).rejects.toEqual(refused(404, 'not_found'))
      }
      for (const token of [tokens.system, tokens.acme, tokens.acmeBakery, tokens.bakery]) {
        const id = await add()
        expect((await rename(token, id)).name).toBe('Barn')
        expect(await remove(token, id)).toMatchObject({ success: true })
        await expect(remove(tokens.system, id)).rejects.toEqual(refused(404, 'not_found'))
      }
      expect((await rename(narrow, orgs.bakery.siteId)).name).toBe('Barn')
    })

    it('is changed field by field, but never moves to another organization', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const bakery = service.client(tokens.bakery)
      const params = { id: orgs.bakery.siteId }
      const news = await newEntries(service)
      const body = {
        name: 'Head Office',
        timezone: 'Europe/Lisbon',
        address: { city: 'Porto' },
        contact: { name: 'Ada' },
      }
      await bakery.call(api.sites.update, { params, body: { settings: { a: { x: 1 }, b: 1 } } })
      const after = await bakery.call(api.sites.update, {
        params,
        body: { ...body, settings: { a: { y: 2 }, b: null } },
      })
      expect(after).toMatchObject({ ...body, orgId: orgs.bakery.id, settings: { a: { x: 1, y: 2 } } })
      expect(await bakery.call(api.sites.show, { params })).toEqual(after)
      expect((await news()).at(-1)).toMatchObject({
        action: 'site.update',
        orgId: orgs.bakery.id,
        details: {
          before: { name: 'bakery site', timezone: 'UTC', address: null, settings: { b: 1 } },
          after: { name: 'Head Office', timezone: 'Europe/Lisbon', settings: { a: { y: 2 } } },
        },
      })
      const faults: [object, string][] = [
        [{ orgId: orgs.garage.id }, 'body.orgId'],
        [{ timezone: '+02:00' }, 'body.timezone'],
        [{ address: { a: 'x'.repeat(20_000) } }, 'body.address'],
        [{}, 'body'],
      ]
      for (const [change, path] of faults) {
        await expect(bakery.request(api.sites.update, { params, body: change })).rejects.toMatchObject({
          status: 400,
          details: [{ path }],
        })
      }
    })

    it('that is in use cannot be deleted, and the error says what uses it', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const bakery = service.client(tokens.bakery)
      const params = { id: orgs.bakery.siteId }
      await service.storage.write((tx) =>
        tx
          .updateTable('device_groups')
          .set({ site_id: orgs.bakery.siteId })
          .where('id', '=', orgs.bakery.groupId)
          .execute(),
      )
      await expect(bakery.call(api.sites.remove, { params })).rejects.toMatchObject({
        status: 409,
        code: 'site_in_use',
        message: 'Site is still used by 1 device, 1 enrollment key, 1 device group',
        details: { devices: 1, enrollmentKeys: 1, deviceGroups: 1 },
      })
      expect((await bakery.call(api.sites.show, { params })).name).toBe('bakery site')
    })

    it('cannot be deleted while a saved filter has a condition on it', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const bakery = service.client(tokens.bakery)
      const { id } = await bakery.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      const conditions = {
        operator: 'AND' as const,
        conditions: [{ field: 'siteId', operator: 'equals' as const, value: id }],
      }
      const filter = await bakery.call(api.filters.create, {
        body: { orgId: orgs.bakery.id, name: 'In the annex', conditions },
      })
      // That of another tenant selects nothing, and tells nobody that it is there.
      const garage = service.client(tokens.garage)
      await garage.call(api.filters.create, {
        body: { orgId: orgs.garage.id, name: 'Elsewhere', conditions },
      })
      await expect(bakery.call(api.sites.remove, { params: { id } })).rejects.toMatchObject({
        code: 'site_in_use',
        message: 'Site is still used by 1 saved filter',
      })
      await bakery.call(api.filters.remove, { params: { id: filter.id } })
      await bakery.call(api.sites.remove, { params: { id } })
    })

    it('is deleted for good, and not while somebody is restricted to it', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const bakery = service.client(tokens.bakery)
      const { id } = await bakery.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      const narrow = service.client(await addOrgUser(service, 'narrow', orgs.bakery.id, { siteIds: [id] }))
      await expect(bakery.call(api.sites.remove, { params: { id } })).rejects.toMatchObject({
        status: 409,
        code: 'site_in_use',
        message: 'Site is still used by 1 membership',
      })
      expect((await narrow.call(api.sites.list)).data).toMatchObject([{ id }])
      const { id: userId } = await narrow.call(api.users.me)
      await bakery.call(api.users.changeAccess, {
        params: { id: userId },
        body: { siteIds: [orgs.bakery.siteId] },
      })
      const news = await newEntries(service)
      await bakery.call(api.sites.remove, { params: { id } })
      expect(await news()).toMatchObject([
        { action: 'site.delete', orgId: orgs.bakery.id, resourceId: id, resourceName: 'Annex' },
      ])
      await expect(bakery.call(api.sites.show, { params: { id } })).rejects.toEqual(
        refused(403, 'site_access_denied'),
      )
      expect((await narrow.call(api.sites.list)).data).toMatchObject([{ id: orgs.bakery.siteId }])
    })
  })
})
