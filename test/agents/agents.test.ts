import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  const begin = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const agent = service.client(bakery.agentToken)
    const device = async () =>
      service.client(world.tokens.bakery).call(api.devices.show, { params: { id: bakery.deviceId } })
    return { service, ...world, bakery, agent, device, params: { id: bakery.agentId } }
  }

  describe('an agent', () => {
    it('reports its inventory, and each part replaces the previous one', async () => {
      const { agent, device, params } = await begin()
      const hardware = { cpuModel: 'Example 9', cpuCores: 8, ramTotalMb: 16_384 }
      const network = [
        { interfaceName: 'eth0', macAddress: '02:00:00:00:00:01', ipAddress: '10.0.0.5', isPrimary: true },
      ]
      const disks = [{ mountPoint: '/', totalGb: 100, usedGb: 25, usedPercent: 25 }]
      await agent.call(api.agents.inventory, { params, body: { hardware, network, disks } })
      expect(await device()).toMatchObject({ hardware, network, disks })
      await agent.call(api.agents.inventory, { params, body: { network: [] } })
      expect(await device()).toMatchObject({ hardware, network: [], disks })
    })

    it('is never refused for invalid telemetry', async () => {
      const { agent, device, params } = await begin()
      const body = {
        status: 'ok',
        agentVersion: '0.2.0',
        uptime: 'long',
        lastUser: 7,
        hostname: 'renamed-pc',
        metrics: { cpuPercent: 900, ramPercent: 40 },
        fromTheFuture: { yes: true },
      }
      await agent.call(api.agents.heartbeat, { params, body: body as never })
      expect(await device()).toMatchObject({
        agentVersion: '0.2.0',
        hostname: 'renamed-pc',
        uptimeSeconds: null,
        lastUser: null,
        metrics: { cpuPercent: null, ramPercent: 40 },
      })
    })

    it('in maintenance stays in maintenance while it reports', async () => {
      const { service, agent, bakery, device, params } = await begin()
      const row = service.storage.write((tx) =>
        tx.updateTable('devices').set({ status: 'maintenance' }).where('id', '=', bakery.deviceId).execute(),
      )
      await row
      await agent.call(api.agents.heartbeat, { params, body: { status: 'ok', agentVersion: '0.1.0' } })
      expect((await device()).status).toBe('maintenance')
    })

    it('authenticates only with its own token', async () => {
      const { service, orgs, agent, params } = await begin()
      const body = { status: 'ok', agentVersion: '0.1.0' } as const
      const other = service.client(orgs.garage.agentToken).call(api.agents.heartbeat, { params, body })
      await expect(other).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
      const none = service.client().call(api.agents.heartbeat, { params, body })
      await expect(none).rejects.toEqual(failing(401, 'unauthenticated'))
      await agent.call(api.agents.heartbeat, { params, body })
    })

    it('of a suspended organization still reports, of a churned one does not', async () => {
      const { service, agent, bakery, params } = await begin()
      const setStatus = (status: string) =>
        service.storage.write((tx) =>
          tx.updateTable('organizations').set({ status }).where('id', '=', bakery.id).execute(),
        )
      const beat = () =>
        agent.call(api.agents.heartbeat, { params, body: { status: 'ok', agentVersion: '0.1.0' } })
      await setStatus('suspended')
      await beat()
      await setStatus('churned')
      await expect(beat()).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
    })
  })

  describe('enrollment', () => {
    const machine = {
      hostname: 'new-pc',
      osType: 'linux',
      osVersion: 'Debian 12',
      architecture: 'x86_64',
      agentVersion: '0.1.0',
    } as const

    it('stops at the device limits of organization and partner, and uses nothing of the key', async () => {
      const { service, tokens, bakery, partners } = await begin()
      const client = service.client(tokens.bakery)
      const body = { name: 'limited', maxUsage: 5 }
      const { id, key } = await client.call(api.enrollmentKeys.create, { body })
      const enroll = () =>
        service.client().call(api.agents.enroll, { body: { enrollmentKey: key, ...machine } })
      const limit = (table: 'organizations' | 'partners', row: string, max: number | null) =>
        service.storage.write((tx) =>
          tx.updateTable(table).set({ max_devices: max }).where('id', '=', row).execute(),
        )
      await limit('organizations', bakery.id, 1)
      await expect(enroll()).rejects.toMatchObject({
        status: 403,
        code: 'device_limit_reached',
        details: { currentDevices: 1, maxDevices: 1 },
      })
      await limit('organizations', bakery.id, null)
      await limit('partners', partners.acme, 2)
      await expect(enroll()).rejects.toMatchObject({
        status: 403,
        details: { currentDevices: 2, maxDevices: 2 },
      })
      expect((await client.call(api.enrollmentKeys.show, { params: { id } })).usageCount).toBe(0)
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'agent.enroll', limit: 2 } })
      expect(data).toMatchObject([
        {
          result: 'denied',
          orgId: bakery.id,
          details: { code: 'device_limit_reached', enrollmentKeyId: id },
        },
        { result: 'denied', orgId: bakery.id },
      ])
      await limit('partners', partners.acme, 3)
      expect(await enroll()).toMatchObject({ orgId: bakery.id, siteId: null })
      const device = (await client.call(api.devices.list, { query: { search: 'NEW' } })).data[0]
      expect(device).toMatchObject({ hostname: 'new-pc', architecture: 'x64', status: 'online' })
    })

    it('is refused while the tenant is not active', async () => {
      const { service, tokens, bakery } = await begin()
      const client = service.client(tokens.bakery)
      const { key } = await client.call(api.enrollmentKeys.create, { body: { name: 'late' } })
      await service.storage.write((tx) =>
        tx.updateTable('organizations').set({ status: 'suspended' }).where('id', '=', bakery.id).execute(),
      )
      const enroll = service.client().call(api.agents.enroll, { body: { enrollmentKey: key, ...machine } })
      await expect(enroll).rejects.toEqual(failing(403, 'tenant_inactive'))
      await expect(client.call(api.devices.list)).rejects.toEqual(failing(403, 'tenant_inactive'))
    })
  })
})
