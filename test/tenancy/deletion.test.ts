import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { addUser, buildWorld, roleOf } from '../world.ts'

inTurn((open) => {
  it('what a deletion would end is counted within the reach of the caller, and then ends', async () => {
    const service = await startService(open)
    const { orgs, partners, tokens } = await buildWorld(service)
    const system = service.client(tokens.system)
    const ofOrg = (token: string, id: string) =>
      service.client(token).call(api.orgs.deletion, { params: { id } })
    const ofPartner = (token: string) =>
      service.client(token).call(api.partners.deletion, { params: { id: partners.acme } })

    const before = await ofOrg(tokens.acme, orgs.bakery.id)
    const garage = await ofOrg(tokens.acme, orgs.garage.id)
    await system.call(api.apiKeys.create, {
      body: { orgId: orgs.bakery.id, name: 'ci', scopes: ['devices:read'] },
    })
    await system.call(api.enrollmentKeys.create, { body: { orgId: orgs.bakery.id, name: 'desk' } })
    await system.call(api.devices.decommission, { params: { id: orgs.bakery.deviceId } })
    const { bakery } = orgs
    await system.call(api.sites.create, { body: { orgId: bakery.id, name: 'Second shop' } })
    await system.call(api.webhooks.create, {
      body: { orgId: bakery.id, name: 'Tickets', url: 'https://hooks.example.com/a', events: ['*'] },
    })
    const named = { orgId: bakery.id, name: 'Night' }
    await system.call(api.roles.create, { body: { ...named, permissions: [] } })
    await system.call(api.roles.create, {
      body: { partnerId: partners.acme, name: 'Of all', permissions: [] },
    })
    const { conditions } = api.filters.create.example
    await system.call(api.filters.create, { body: { ...named, conditions } })
    await system.call(api.deviceGroups.create, { body: named })
    const script = { osTypes: ['linux' as const], language: 'bash' as const, content: 'true' }
    await service.client(tokens.acme).call(api.scripts.create, { body: { ...named, ...script } })
    await service.client(tokens.acme).call(api.scripts.create, { body: { name: 'Of all', ...script } })
    await system.call(api.ssoProviders.remove, { params: { id: bakery.providerId } })
    await system.call(api.trustPolicies.remove, { params: { id: bakery.policyId } })
    // Of both organizations and their partner, and still one person.
    const userId = await addUser(service, 'everywhere')
    const roleId = roleOf('Org Viewer', 'organization')
    const stamp = new Date().toISOString()
    await service.storage.write(async (tx) => {
      for (const { id: orgId } of [bakery, orgs.garage])
        await joinOrganization(tx, { orgId, userId, roleId, siteIds: null }, stamp)
      const membership = { partnerId: partners.acme, userId, roleId: roleOf('Partner Admin', 'partner') }
      await joinPartner(tx, { ...membership, orgs: 'all' }, stamp)
    })
    const now = {
      ...before,
      sites: before.sites + 1,
      roles: before.roles + 1,
      filters: before.filters + 1,
      deviceGroups: before.deviceGroups + 1,
      scripts: before.scripts + 1,
      webhooks: before.webhooks + 1,
      ssoProviders: before.ssoProviders - 1,
      trustPolicies: before.trustPolicies - 1,
      members: before.members + 1,
      devices: before.devices - 1,
      apiKeys: before.apiKeys + 1,
      enrollmentKeys: before.enrollmentKeys + 1,
    }
    expect(await ofOrg(tokens.acmeBakery, orgs.bakery.id)).toEqual(now)
    expect(await ofOrg(tokens.acme, orgs.garage.id)).toEqual({ ...garage, members: garage.members + 1 })
    expect(garage.devices).toBeGreaterThan(0)
    expect(await ofPartner(tokens.system)).toEqual({
      organizations: 2,
      devices: now.devices + garage.devices,
      apiKeys: now.apiKeys + garage.apiKeys,
      enrollmentKeys: now.enrollmentKeys + garage.enrollmentKeys,
      // Three of the partner, and the one of all.
      members: before.members + garage.members + 4,
      sites: now.sites + garage.sites,
      // One of the partner itself.
      roles: now.roles + garage.roles + 1,
      filters: now.filters + garage.filters,
      deviceGroups: now.deviceGroups + garage.deviceGroups,
      scripts: now.scripts + garage.scripts + 1,
      webhooks: now.webhooks + garage.webhooks,
      ssoProviders: now.ssoProviders + garage.ssoProviders,
      trustPolicies: now.trustPolicies + garage.trustPolicies,
    })
    for (const [token, id] of [
      [tokens.acmeBakery, orgs.garage.id],
      [tokens.globex, orgs.bakery.id],
    ] as const)
      await expect(ofOrg(token, id)).rejects.toMatchObject({ status: 404 })
    await expect(ofPartner(tokens.acme)).rejects.toMatchObject({ status: 403 })
    await expect(ofOrg(tokens.bakery, orgs.bakery.id)).rejects.toMatchObject({ status: 403 })

    await system.call(api.partners.remove, { params: { id: partners.acme } })
    await expect(ofPartner(tokens.system)).rejects.toMatchObject({ status: 404 })
    const keys = await service.storage.read.selectFrom('api_keys').select(['org_id', 'status']).execute()
    for (const { org_id, status } of keys)
      expect([org_id, status === 'revoked']).toEqual([org_id, org_id !== orgs.harbor.id])
  })
})
