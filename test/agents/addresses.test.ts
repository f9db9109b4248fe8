import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { buildWorld } from '../world.ts'

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const env = { TRUST_PROXY_HEADERS: 'true' }
    const service = await startService(open, { clock, env })
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const params = { id: bakery.agentId }
    const beat = (ip: string) =>
      service
        .client(bakery.agentToken, { 'x-forwarded-for': ip })
        .call(api.agents.heartbeat, { params, body: { status: 'ok', agentVersion: '0.1.0' } })
    await beat('203.0.113.1')
    return { clock, service, world, bakery, beat, entriesSince: await newEntries(service) }
  }

  describe('an agent that reports from a new address', () => {
    it('leaves an audit entry with the previous and the new address', async () => {
      const { beat, entriesSince, bakery, service, world } = await start()
      await beat('203.0.113.1')
      expect(await entriesSince()).toEqual([])
      await beat('203.0.113.2')
      expect(await entriesSince()).toMatchObject([
        {
          action: 'agent.source.ip.changed',
          actorType: 'agent',
          actorId: bakery.deviceId,
          orgId: bakery.id,
          resourceType: 'device',
          resourceId: bakery.deviceId,
          details: { previousIp: '203.0.113.1', newIp: '203.0.113.2' },
          ipAddress: '203.0.113.2',
          result: 'success',
        },
      ])
      const report = await service.client(world.tokens.bakery).call(api.auditReports.security, { query: {} })
      expect(report.byAction).toContainEqual({ action: 'agent.source.ip.changed', count: 2 })
    })

    it('leaves one entry per address in 24 hours, however often the address alternates', async () => {
      const { beat, clock, entriesSince } = await start()
      const newAddresses = async () => (await entriesSince()).map(({ details }) => details.newIp)
      for (const ip of ['203.0.113.2', '203.0.113.1', '203.0.113.2', '203.0.113.1']) await beat(ip)
      // The first address was new as well: the device enrolled from another one.
      expect(await newAddresses()).toEqual(['203.0.113.2'])
      clock.forward(86_399)
      await beat('203.0.113.2')
      expect(await newAddresses()).toEqual([])
      clock.forward(1)
      await beat('203.0.113.1')
      await beat('203.0.113.2')
      expect(await newAddresses()).toEqual(['203.0.113.1', '203.0.113.2'])
    })

    it('leaves one entry when several reports from there come at once', async () => {
      const { beat, entriesSince } = await start()
      await Promise.all([1, 2, 3, 4].map(() => beat('203.0.113.9')))
      expect(await entriesSince()).toHaveLength(1)
    })
  })
})
