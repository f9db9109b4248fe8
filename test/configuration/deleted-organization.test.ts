import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { pruned, script, startWithHistory } from './history-fixture.ts'

inTurn((open) => {
  describe('the deletion of an organization', () => {
    it('counts all that ends with it, and is out of date when more would', async () => {
      const { acme } = await startWithHistory(open)
      await acme.apply({ organizations: [{ slug: 'florist', name: 'Florist' }] })
      const orgs = await acme.client.call(api.orgs.list)
      const { id: orgId } = orgs.data.find(({ slug }) => slug === 'florist')!
      const gone = { organizations: [] }
      const { conditions } = api.filters.create.example
      const named = { orgId, name: 'Late' }
      const ends = { roles: 0, filters: 0, deviceGroups: 0, scripts: 0 }
      const more = {
        roles: () => acme.client.call(api.roles.create, { body: { ...named, permissions: [] } }),
        filters: () => acme.client.call(api.filters.create, { body: { ...named, conditions } }),
        deviceGroups: () => acme.client.call(api.deviceGroups.create, { body: named }),
        scripts: () => acme.client.call(api.scripts.create, { body: { ...named, ...script } }),
      }
      for (const [section, make] of Object.entries(more)) {
        const { version, changes } = await acme.plan(gone, pruned)
        expect(changes).toMatchObject([{ action: 'delete', ends }])
        await make()
        ends[section as keyof typeof more] = 1
        await expect(acme.apply(gone, pruned, version)).rejects.toMatchObject({ code: 'conflict' })
      }
      expect((await acme.apply(gone, pruned)).changes).toMatchObject([{ action: 'delete', ends }])
    })

    it('is at fault while another set of the partner has something in it, and ends sets of its own', async () => {
      const { acme, by, world } = await startWithHistory(open)
      const florist = { organizations: [{ slug: 'florist', name: 'Florist' }] }
      await acme.apply(florist, { set: 'tenants' })
      const { data } = await acme.client.call(api.orgs.list, {})
      const { id } = data.find(({ slug }) => slug === 'florist')!
      await by(world.tokens.acme, id).apply({ sites: [{ name: 'Annex' }] }, { set: 'own' })
      const filters = [{ org: 'florist', name: 'Late', conditions: api.filters.create.example.conditions }]
      await acme.apply({ filters }, { set: 'fleet' })
      const gone = { organizations: [] }
      const inTenants = { ...pruned, set: 'tenants' }
      const message = 'cannot delete "florist": other sets have objects in it ("fleet"): prune these first'
      await expect(acme.plan(gone, inTenants)).rejects.toMatchObject({
        details: [{ path: 'body.document.organizations', message }],
      })
      // A key that has ended keeps nothing.
      const { id: keyId } = await acme.client.call(api.apiKeys.create, {
        body: { orgId: id, name: 'Export', scopes: ['devices:read'] },
      })
      await acme.apply({ apiKeys: [{ org: 'florist', name: 'Export' }] }, { set: 'keys', adopt: true })
      await acme.client.call(api.apiKeys.revoke, { params: { id: keyId } })
      // Somebody has deleted it meanwhile, and the set has not been applied since.
      const [late] = (await acme.client.call(api.filters.list, { query: { orgId: id } })).data
      await acme.client.call(api.filters.remove, { params: { id: late!.id } })
      const { version } = await acme.plan(gone, inTenants)
      await acme.apply({ filters }, { set: 'fleet' })
      await expect(acme.apply(gone, inTenants, version)).rejects.toMatchObject({
        code: 'conflict',
        message: expect.stringContaining(message),
      })
      await acme.apply({ filters: [] }, { ...pruned, set: 'fleet' })
      await acme.apply(gone, inTenants)
      expect((await acme.client.call(api.orgs.list, {})).data.map(({ slug }) => slug)).not.toContain(
        'florist',
      )
    })
  })
})
