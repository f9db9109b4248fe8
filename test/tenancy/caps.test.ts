import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld, systemToken } from '../world.ts'

inTurn((open) => {
  it('a partner gets no more organizations than its cap, even concurrently', async () => {
    const service = await startService(open)
    const client = service.client(await systemToken(service))
    const partner = await client.call(api.partners.create, {
      body: { name: 'Acme', slug: 'acme', maxOrganizations: 3 },
    })
    const create = (n: number) =>
      client.call(api.orgs.create, { body: { partnerId: partner.id, name: `Org ${n}`, slug: `org-${n}` } })
    const results = await Promise.allSettled(Array.from({ length: 12 }, (_, n) => create(n)))
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
    for (const one of results) {
      if (one.status === 'fulfilled') continue
      expect(one.reason).toMatchObject({ status: 403, code: 'organization_limit_reached' })
    }
  })

  it('a cap may be set below the current number, and then only blocks new ones', async () => {
    const service = await startService(open)
    const { partners, orgs, tokens } = await buildWorld(service)
    const system = service.client(tokens.system)
    const params = { id: partners.acme }
    const create = (slug: string) =>
      service.client(tokens.acme).call(api.orgs.create, { body: { name: slug, slug } })
    await system.call(api.partners.update, { params, body: { maxOrganizations: 1, maxDevices: 1 } })
    await expect(create('third')).rejects.toMatchObject({
      code: 'organization_limit_reached',
      details: { currentOrganizations: 2, maxOrganizations: 1 },
    })
    expect((await service.client(tokens.acme).call(api.orgs.list)).data).toHaveLength(2)

    const { key: enrollmentKey } = await system.call(api.enrollmentKeys.create, {
      body: { orgId: orgs.bakery.id, name: 'desk', maxUsage: 10 },
    })
    const machine = { hostname: 'pc', osType: 'linux', osVersion: '12', architecture: 'x64' } as const
    const enroll = () =>
      service.client().call(api.agents.enroll, { body: { enrollmentKey, ...machine, agentVersion: '0.1.0' } })
    const full = (maxDevices: number, currentDevices: number) =>
      expect(enroll()).rejects.toMatchObject({
        code: 'device_limit_reached',
        details: { currentDevices, maxDevices },
      })
    await full(1, 2)
    await system.call(api.partners.update, { params, body: { maxOrganizations: null, maxDevices: null } })
    const org = { params: { id: orgs.bakery.id } }
    await system.call(api.orgs.update, { ...org, body: { maxDevices: 0 } })
    await full(0, 1)
    await system.call(api.orgs.update, { ...org, body: { maxDevices: 2 } })
    await enroll()
    await full(2, 2)
    expect((await create('third')).slug).toBe('third')
  })

  it('devices of a deleted organization, and decommissioned ones, take no place under a cap', async () => {
    const service = await startService(open)
    const { partners, orgs, tokens } = await buildWorld(service)
    const system = service.client(tokens.system)
    const { key: enrollmentKey } = await system.call(api.enrollmentKeys.create, {
      body: { orgId: orgs.bakery.id, name: 'desk', maxUsage: 10 },
    })
    const machine = { hostname: 'pc', osType: 'linux', osVersion: '12', architecture: 'x64' } as const
    const enroll = () =>
      service.client().call(api.agents.enroll, { body: { enrollmentKey, ...machine, agentVersion: '0.1.0' } })
    const full = { code: 'device_limit_reached', details: { currentDevices: 2, maxDevices: 2 } }
    await system.call(api.partners.update, { params: { id: partners.acme }, body: { maxDevices: 2 } })
    await expect(enroll()).rejects.toMatchObject(full)
    await system.call(api.orgs.remove, { params: { id: orgs.garage.id } })
    const { deviceId: id } = await enroll()
    await expect(enroll()).rejects.toMatchObject(full)
    await system.call(api.devices.decommission, { params: { id } })
    await enroll()
    const restoring = system.call(api.devices.restore, { params: { id } })
    await expect(restoring).rejects.toMatchObject(full)
  })
})
