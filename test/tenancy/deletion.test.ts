import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

onEveryDatabase((_, open) => {
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
    const now = {
      devices: before.devices - 1,
      apiKeys: before.apiKeys + 1,
      enrollmentKeys: before.enrollmentKeys + 1,
    }
    expect(await ofOrg(tokens.acmeBakery, orgs.bakery.id)).toEqual(now)
    expect(await ofOrg(tokens.acme, orgs.garage.id)).toEqual(garage)
    expect(garage.devices).toBeGreaterThan(0)
    expect(await ofPartner(tokens.system)).toEqual({
      organizations: 2,
      devices: now.devices + garage.devices,
      apiKeys: now.apiKeys + garage.apiKeys,
      enrollmentKeys: now.enrollmentKeys + garage.enrollmentKeys,
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
