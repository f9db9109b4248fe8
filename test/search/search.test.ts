import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addGroup, addOrgUser, addRole, buildWorld, type World } from '../world.ts'
import { addAlert, addDevice, addScript } from './fleet.ts'

onEveryDatabase((_, open) => {
  const setUp = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const ask = async (token: string | undefined, q: string, limit?: number, orgId?: string) => {
      const query = { q, ...(limit !== undefined && { limit: String(limit) }), ...(orgId && { orgId }) }
      return (await service.client(token).call(api.search.everything, { query })).results
    }
    const titles = async (token: string | undefined, q: string, limit?: number, orgId?: string) =>
      (await ask(token, q, limit, orgId)).map(({ title }) => title)
    return { service, world, ask, titles }
  }
  const custom = async (service: TestService, world: World, name: string, permissions: string[]) => {
    const role = await addRole(service, world.orgs.bakery.id, name, permissions)
    return addOrgUser(service, name, world.orgs.bakery.id, { role })
  }

  describe('a search', () => {
    it('shows each record with details that distinguish it', async () => {
      const { service, world, ask } = await setUp()
      const orgId = world.orgs.bakery.id
      const deviceId = await addDevice(service.storage, { orgId, hostname: 'PC-1', displayName: 'User desk' })
      await service.storage.write((tx) =>
        tx.updateTable('devices').set({ last_user: 'ada' }).where('id', '=', deviceId).execute(),
      )
      const scriptId = await addScript(service.storage, {
        orgId,
        name: 'Add user',
        description: 'Asks nothing',
      })
      const alertId = await addAlert(service.storage, { orgId, title: 'User locked', message: 'five times' })
      expect(await ask(world.tokens.bakery, '  uSeR ')).toEqual([
        { id: deviceId, type: 'devices', title: 'User desk', description: 'PC-1 · online · ada' },
        { id: scriptId, type: 'scripts', title: 'Add user', description: 'Asks nothing' },
        { id: alertId, type: 'alerts', title: 'User locked', description: 'high' },
        {
          id: 'settings-users',
          type: 'settings',
          title: 'User management',
          description: 'Manage users and roles',
          href: '/settings/users',
        },
      ])
      expect((await ask(world.tokens.bakery, 'five TIMES')).map(({ id }) => id)).toEqual([alertId])
    })

    it('stays within the scope of the caller', async () => {
      const { service, world, titles } = await setUp()
      const { bakery, garage, harbor } = world.orgs
      const { acme, globex } = world.partners
      const { storage } = service
      for (const [name, owner] of Object.entries({
        'own-bakery': { orgId: bakery.id },
        'own-garage': { orgId: garage.id },
        'own-harbor': { orgId: harbor.id },
        'own-acme': { partnerId: acme },
        'own-globex': { partnerId: globex },
        'own-service': {},
      })) {
        await addScript(storage, { ...owner, name })
        if ('orgId' in owner) {
          await addDevice(storage, { orgId: owner.orgId!, hostname: name })
          await addAlert(storage, { orgId: owner.orgId!, title: name })
        }
      }
      const seen = async (token: string) =>
        (await titles(token, 'own-', 50)).map((it) => it.slice(4)).join(' ')
      expect(await seen(world.tokens.bakery)).toBe('bakery acme bakery service bakery')
      expect(await seen(world.tokens.acmeBakery)).toBe('bakery acme bakery service bakery')
      expect(await seen(world.tokens.acmeNone)).toBe('acme service')
      expect(await seen(world.tokens.acme)).toBe('bakery garage acme bakery garage service bakery garage')
      expect(await seen(world.tokens.globex)).toBe('harbor globex harbor service harbor')
      expect(await seen(world.tokens.system)).toBe(
        'bakery garage harbor acme bakery garage globex harbor service bakery garage harbor',
      )
    })

    it('is limited to an organization: its devices, its alerts, and the scripts that it can use', async () => {
      const { service, world, titles } = await setUp()
      const { bakery, garage, harbor } = world.orgs
      const { storage } = service
      const inside = await addDevice(storage, {
        orgId: bakery.id,
        siteId: bakery.siteId,
        hostname: 'one bakery',
      })
      for (const [name, { id: orgId }] of Object.entries({ bakery, garage, harbor })) {
        await addScript(storage, { orgId, name: `one ${name}` })
        await addAlert(storage, { orgId, title: `one ${name}` })
        if (orgId !== bakery.id) await addDevice(storage, { orgId, hostname: `one ${name}` })
      }
      await addDevice(storage, { orgId: bakery.id, hostname: 'one outside' })
      await addScript(storage, { partnerId: world.partners.acme, name: 'one acme' })
      await addScript(storage, { partnerId: world.partners.globex, name: 'one globex' })
      await addScript(storage, { name: 'one service' })
      const found = async (token: string, orgId: string) =>
        (await titles(token, 'one ', 50, orgId)).map((it) => it.slice(4)).join(' ')
      const { tokens } = world
      const ofBakery = 'bakery outside acme bakery service bakery'
      for (const token of [tokens.system, tokens.acme, tokens.acmeBakery, tokens.bakery])
        expect(await found(token, bakery.id)).toBe(ofBakery)
      expect(await found(tokens.system, harbor.id)).toBe('harbor globex harbor service harbor')
      const groupIds = [await addGroup(service, bakery.id, 'inside', [inside])]
      for (const [name, narrowed] of Object.entries({
        site: { siteIds: [bakery.siteId] },
        group: { groupIds },
      })) {
        const token = await addOrgUser(service, name, bakery.id, narrowed)
        expect(await found(token, bakery.id)).toBe('bakery acme bakery service')
      }
      for (const token of [tokens.bakery, tokens.acmeBakery, tokens.globex])
        await expect(found(token, garage.id)).rejects.toMatchObject({
          status: 403,
          code: 'org_access_denied',
        })
      await expect(found(tokens.system, newId())).rejects.toMatchObject({ status: 404 })
      expect(await titles(tokens.acme, 'profile', 50, bakery.id)).toEqual(['Profile settings'])
    })

    it('shows a restricted member no other devices, and no alerts about them or about none', async () => {
      const { service, world, titles } = await setUp()
      const { storage } = service
      const { id: orgId, siteId } = world.orgs.bakery
      const inside = await addDevice(storage, { orgId, siteId, hostname: 'find-inside' })
      const outside = await addDevice(storage, { orgId, hostname: 'find-outside' })
      const both = { inside, outside }
      for (const [name, deviceId] of Object.entries(both))
        await addAlert(storage, { orgId, deviceId, title: `find ${name}` })
      await addAlert(storage, { orgId, title: 'find none' })
      const groupIds = [await addGroup(service, orgId, 'inside', [inside])]
      const all = ['find-inside', 'find-outside', 'find inside', 'find none', 'find outside']
      expect(await titles(world.tokens.bakery, 'find')).toEqual(all)
      for (const [name, narrowed] of Object.entries({
        bySite: { siteIds: [siteId] },
        byGroup: { groupIds },
      })) {
        const token = await addOrgUser(service, name, orgId, narrowed)
        expect(await titles(token, 'find')).toEqual(['find-inside', 'find inside'])
      }
      const nothing = await addOrgUser(service, 'nothing', orgId, { groupIds: [] })
      expect(await titles(nothing, 'find')).toEqual([])
    })

    it('omits the kinds that the caller may not read', async () => {
      const { service, world, titles } = await setUp()
      const orgId = world.orgs.bakery.id
      await addDevice(service.storage, { orgId, hostname: 'manage-pc' })
      await addScript(service.storage, { orgId, name: 'manage script' })
      await addAlert(service.storage, { orgId, title: 'manage alert' })
      const open = ['Profile settings', 'Security settings']
      for (const [permission, shown] of [
        ['devices:read', ['manage-pc', ...open]],
        ['scripts:read', ['manage script', ...open]],
        ['alerts:read', ['manage alert', ...open]],
        ['users:read', ['Profile settings', 'Security settings', 'User management']],
        ['sites:read', open],
      ] as const) {
        const token = await custom(service, world, permission.replace(':', '-'), [permission])
        expect(await titles(token, 'manage')).toEqual(shown)
      }
    })

    it('is open to API keys, within their scopes', async () => {
      const { service, world } = await setUp()
      const orgId = world.orgs.bakery.id
      await addDevice(service.storage, { orgId, hostname: 'keyed' })
      await addScript(service.storage, { orgId, name: 'keyed' })
      await addDevice(service.storage, { orgId: world.orgs.garage.id, hostname: 'keyed' })
      const admin = service.client(world.tokens.system)
      const { key } = await admin.call(api.apiKeys.create, {
        body: { orgId, name: 'search', scopes: ['devices:read'] },
      })
      const { results } = await service
        .client(undefined, { 'x-api-key': key })
        .call(api.search.everything, { query: { q: 'keyed' } })
      expect(results.map(({ type }) => type)).toEqual(['devices'])
    })

    it('gives each kind a quarter of the limit, at most 8, and never exceeds the limit', async () => {
      const { service, world, titles } = await setUp()
      const orgId = world.orgs.bakery.id
      for (let i = 10; i < 22; i++) {
        await addDevice(service.storage, { orgId, hostname: `many-${i}` })
        await addScript(service.storage, { orgId, name: `many ${i}` })
        await addAlert(service.storage, { orgId, title: `many: ${i}` })
      }
      const counts = async (limit?: number) => {
        const all = await titles(world.tokens.bakery, 'many', limit)
        return ['many-', 'many ', 'many:'].map((it) => all.filter((title) => title.startsWith(it)).length)
      }
      expect(await counts()).toEqual([5, 5, 5])
      expect(await counts(1)).toEqual([1, 0, 0])
      expect(await counts(2)).toEqual([1, 1, 0])
      expect(await counts(50)).toEqual([8, 8, 8])
      expect(await counts(1000)).toEqual([8, 8, 8])
      expect(await counts(0)).toEqual([1, 0, 0])
      expect(await titles(world.tokens.bakery, 'many', 4)).toEqual(['many-10', 'many 10', 'many: 10'])
    })

    it.each(['', '   ', 'x'.repeat(101)])('refuses %j', async (q) => {
      const { ask, world } = await setUp()
      await expect(ask(world.tokens.bakery, q)).rejects.toMatchObject({ status: 400 })
    })
  })
})
