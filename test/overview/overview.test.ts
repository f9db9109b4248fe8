import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { addRollout } from '../agents/rollouts/records.ts'
import { inTurn } from '../databases.ts'
import { addDevice } from '../groups/fleet.ts'
import { startService, testClock } from '../harness.ts'
import { addOrgUser, buildWorld } from '../world.ts'

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    await sealPending(service.storage)
    const show = (token: string, orgId?: string) =>
      service.client(token).call(api.overview.show, { query: { orgId } })
    return { clock, service, world, show }
  }

  describe('the overview', () => {
    it('counts what the caller can see, and no more', async () => {
      const { service, world, show } = await start()
      const { tokens, orgs } = world
      await addDevice(service, world, orgs.garage, 'garage-2')
      const counted = async (token: string, orgId?: string) => {
        const { devices, alerts, webhooks, audit } = await show(token, orgId)
        const attempts = webhooks && webhooks.succeeded + webhooks.failed
        return [devices?.total, alerts?.active, webhooks?.byStatus.active, attempts, audit?.chains]
      }
      const all = await counted(tokens.system)
      const [bakery, garage, harbor] = [
        await counted(tokens.bakery),
        await counted(tokens.garage),
        await counted(tokens.harbor),
      ]
      // Each organization has one of each; the system chain comes on top.
      expect([bakery, garage, harbor].map(([devices, alerts]) => [devices, alerts])).toEqual([
        [1, 1],
        [2, 1],
        [1, 1],
      ])
      expect(all).toEqual(
        [0, 1, 2, 3, 4].map((n) =>
          [bakery, garage, harbor].reduce((sum, one) => sum + one[n]!, n === 4 ? 1 : 0),
        ),
      )
      expect(await counted(tokens.acmeBakery)).toEqual(bakery)
      expect(await counted(tokens.system, orgs.garage.id)).toEqual(garage)
      expect(await counted(tokens.acmeNone)).toEqual([0, 0, 0, 0, 0])
      await expect(show(tokens.harbor, orgs.bakery.id)).rejects.toMatchObject({ code: 'org_access_denied' })
    })

    it('leaves out what the caller may not read, with the reason', async () => {
      const { world, show } = await start()
      const { leftOut, audit, rollout, devices, scope } = await show(world.tokens.bakeryViewer)
      expect([audit, rollout, scope]).toEqual([null, null, 'organization'])
      expect(devices).not.toBeNull()
      expect(leftOut).toEqual([
        { part: 'webhooks', reason: 'Permission denied: organizations:read' },
        { part: 'rollout', reason: 'only in system scope' },
        { part: 'audit', reason: 'Permission denied: audit:read' },
      ])
    })

    it('shows an API key what its scopes allow', async () => {
      const { service, world } = await start()
      const { key } = await service
        .client(world.tokens.bakery)
        .call(api.apiKeys.create, { body: { name: 'ci', scopes: ['devices:read'] } })
      const it = await service.client(undefined, { 'x-api-key': key }).call(api.overview.show)
      expect(it.devices?.total).toBe(1)
      expect(it.leftOut.map(({ part }) => part)).toEqual(['alerts', 'webhooks', 'rollout', 'audit'])
    })

    it('counts heartbeats, states, open alerts, the rollout and the head of the own chain', async () => {
      const { clock, service, world, show } = await start()
      const { bakery } = world.orgs
      const agent = service.client(bakery.agentToken)
      const beat = { status: 'ok', agentVersion: '0.1.0' } as const
      await agent.call(api.agents.heartbeat, { params: { id: bakery.agentId }, body: beat })
      const rate = async () => (await show(world.tokens.bakery)).devices?.heartbeatsPerSecond
      await expect.poll(rate, { timeout: 15_000 }).toBe(0.02)
      clock.forward(61)
      const admin = service.client(world.tokens.bakery)
      const { id } = await admin.call(api.alerts.create, { body: { severity: 'critical', title: 'Fire' } })
      await admin.call(api.alerts.acknowledge, { params: { id } })
      await admin.call(api.devices.maintenance, { params: { id: bakery.deviceId }, body: { enable: true } })
      await addRollout(service, 'running')
      await sealPending(service.storage)
      const { devices, alerts } = await show(world.tokens.bakery)
      expect(devices).toMatchObject({
        total: 1,
        heartbeatsPerSecond: 0,
        byStatus: { maintenance: 1, online: 0 },
      })
      expect(alerts).toMatchObject({ active: 1, acknowledged: 1, bySeverity: { critical: 1 } })
      const { rollout, audit } = await show(world.tokens.system)
      expect(rollout).toMatchObject({ version: '9.9.9', status: 'running' })
      const { data } = await service.client(world.tokens.system).call(api.auditLogs.heads)
      const own = data.find(({ orgId }) => orgId === null)!
      expect(audit?.head).toEqual({ seq: own.seq, checksum: own.checksum })
      expect(audit?.entries).toBe(data.reduce((sum, { seq }) => sum + seq, 0))
      expect((await show(world.tokens.acme)).audit?.head).toBeNull()
    })

    it('counts for a member who is limited to sites what is there, and no webhooks', async () => {
      const { service, world, show } = await start()
      const { bakery } = world.orgs
      await addDevice(service, world, bakery, 'at-the-site', { siteId: bakery.siteId })
      const limited = (siteIds: string[]) =>
        addOrgUser(service, `member-${siteIds.length}`, bakery.id, { siteIds })
      const [none, one] = [await show(await limited([])), await show(await limited([bakery.siteId]))]
      const seen = await service
        .client(world.tokens.bakery)
        .call(api.devices.list, { query: { siteId: bakery.siteId } })
      expect([none.devices?.total, none.alerts?.active]).toEqual([0, 0])
      expect(one.devices?.total).toBe(seen.data.length)
      expect(one.leftOut.map(({ part }) => part)).toContain('webhooks')
    })
  })
})
