import { describe, expect, it, vi } from 'vitest'
import { api } from '../../../src/api.ts'
import { checkLiveness } from '../../../src/devices/jobs.ts'
import { inTurn } from '../../databases.ts'
import { RawAgent } from '../../live/raw-agent.ts'
import { begin } from '../rollouts/rollout-fixture.ts'

inTurn((open) => {
  const setUp = async () => {
    const stage = await begin(open)
    const { service, system, bakery, clock, enroll } = stage
    const pc = await enroll('pc')
    const settings = (defaults: Record<string, unknown>) =>
      system.call(api.orgs.update, { params: { id: bakery.id }, body: { settings: { defaults } } })
    const put = (columns: { auto_update?: number; status?: string; os_type?: string }) =>
      service.storage.write((tx) =>
        tx.updateTable('devices').set(columns).where('id', '=', pc.deviceId).execute(),
      )
    const check = () => checkLiveness(service.storage, { offlineAfterSeconds: 300 }, clock())
    return { ...stage, pc, settings, put, check }
  }

  describe('a heartbeat', () => {
    it('is offered the promoted version for its platform, until it reports that version', async () => {
      const { pc, beat, release } = await setUp()
      expect(await beat(pc)).toBeNull()
      await release('1.0.0', { promoted: true, kinds: ['linux/x64', 'windows/x64'] })
      expect(await beat(pc)).toBe('1.0.0')
      expect(await beat(pc)).toBe('1.0.0')
      expect(await beat(pc, '1.0.0')).toBeNull()
    })

    it.each(['1.1.0', '1.1.0-rc.1', '1.0.1-alpha', 'v1.1.0', '1.1.0+build.7', '1.0.0+build.7', 'v1.0.0'])(
      'gets no offer for a promoted version that is not newer than %s',
      async (reported) => {
        const { pc, beat, release } = await setUp()
        await release('1.0.0', { promoted: true })
        expect(await beat(pc, reported)).toBeNull()
      },
    )

    it('is offered a version that is newer by precedence, not by text order', async () => {
      const { pc, beat, release } = await setUp()
      await release('1.0.0-rc.10', { promoted: true })
      expect(await beat(pc, '1.0.0-rc.11')).toBeNull()
      expect(await beat(pc, '1.0.0')).toBeNull()
      expect(await beat(pc, '1.0.0-rc.9')).toBe('1.0.0-rc.10')
      expect(await beat(pc, '0.10.0')).toBe('1.0.0-rc.10')
    })

    it('is not led to an intermediate version older than one with a non-standard version', async () => {
      const { pc, beat, release } = await setUp()
      await release('1.0.0')
      await release('3.0.0', { promoted: true, minFrom: '1.0.0' })
      expect(await beat(pc, 'v2.0.0')).toBeNull()
      expect(await beat(pc, '2.0.0')).toBe('3.0.0')
    })

    it('is never offered a version that exists only for other platforms', async () => {
      const { pc, beat, release, put } = await setUp()
      await release('1.0.0', { promoted: true, kinds: ['windows/x64', 'linux/arm64'] })
      expect(await beat(pc)).toBeNull()
      await put({ os_type: 'windows' })
      expect(await beat(pc)).toBe('1.0.0')
    })

    it('is led through a required intermediate version, and gets no offer when that is missing', async () => {
      const { pc, beat, release } = await setUp()
      await release('2.0.0', { promoted: true, minFrom: '1.0.0' })
      expect(await beat(pc)).toBeNull()
      await release('1.0.0')
      expect(await beat(pc)).toBe('1.0.0')
      expect(await beat(pc, '1.0.0')).toBe('2.0.0')
    })

    it('gets no offer for a development build, in maintenance, or with auto-update off', async () => {
      const { pc, beat, release, put } = await setUp()
      await release('1.0.0', { promoted: true })
      expect(await beat(pc, 'dev-abc')).toBeNull()
      expect(await beat(pc, '0.1.0', { autoUpdate: false })).toBeNull()
      // A heartbeat without the setting keeps the last reported one.
      expect(await beat(pc)).toBeNull()
      expect(await beat(pc, '0.1.0', { autoUpdate: true })).toBe('1.0.0')
      await put({ status: 'maintenance' })
      expect(await beat(pc)).toBeNull()
      await put({ status: 'online', auto_update: 0 })
      expect(await beat(pc)).toBeNull()
    })

    it('gets no offer in a suspended organization', async () => {
      const { pc, beat, release, system, bakery } = await setUp()
      await release('1.0.0', { promoted: true })
      await system.call(api.orgs.update, { params: { id: bakery.id }, body: { status: 'suspended' } })
      expect(await beat(pc)).toBeNull()
    })

    it('is not offered a failed version for an hour, unless it is promoted again', async () => {
      const { pc, beat, say, release, clock, service } = await setUp()
      await release('1.0.0', { promoted: true })
      for (const state of ['failed', 'refused', 'rolled_back'] as const) {
        expect(await beat(pc)).toBe('1.0.0')
        await say(pc, { targetVersion: '1.0.0', state })
        expect(await beat(pc)).toBeNull()
        clock.forward(3599)
        expect(await beat(pc)).toBeNull()
        clock.forward(1)
      }
      await say(pc, { targetVersion: '1.0.0', state: 'failed', reason: 'disk full' })
      expect(await beat(pc)).toBeNull()
      clock.forward(1)
      await service.storage.write((tx) =>
        tx.updateTable('agent_builds').set({ promoted_at: clock() }).execute(),
      )
      expect(await beat(pc)).toBe('1.0.0')
    })

    it('of a watchdog is offered a version once its agent was silent for 15 minutes', async () => {
      const { pc, release, clock, service, beat } = await setUp()
      await beat(pc)
      await release('1.0.0', { promoted: true })
      const token = (pc as unknown as { watchdogAuthToken: string }).watchdogAuthToken
      const watch = async () => {
        const body = { status: 'ok' as const, agentVersion: '9.9.9', role: 'watchdog' as const }
        const params = { id: pc.agentId }
        return (await service.client(token).call(api.agents.heartbeat, { params, body })).upgradeTo
      }
      clock.forward(899)
      expect(await watch()).toBeNull()
      clock.forward(1)
      expect(await watch()).toBe('1.0.0')
    })
  })

  describe('the settings of an organization', () => {
    it('withhold updates: always with the manual policy, otherwise outside of the window', async () => {
      const { pc, beat, release, clock, settings } = await setUp()
      await release('1.0.0', { promoted: true })
      for (const agentUpdatePolicy of ['auto', 'staged', null]) {
        await settings({ agentUpdatePolicy })
        expect(await beat(pc)).toBe('1.0.0')
      }
      await settings({ agentUpdatePolicy: 'manual' })
      expect(await beat(pc)).toBeNull()
      // The clock is at Sunday, 1 March 2026, noon.
      await settings({ agentUpdatePolicy: null, maintenanceWindow: 'Sun 13:00-15:00' })
      expect(await beat(pc)).toBeNull()
      clock.forward(3600)
      expect(await beat(pc)).toBe('1.0.0')
      clock.forward(7200)
      expect(await beat(pc)).toBeNull()
      await settings({ maintenanceWindow: null })
      expect(await beat(pc)).toBe('1.0.0')
    })

    it('that are invalid are refused, and change nothing', async () => {
      const { settings, bakery, system } = await setUp()
      const wrong = [
        { agentUpdatePolicy: 'never' },
        { maintenanceWindow: 'Sunday 02:00-04:00' },
        { maintenanceWindow: 'Sun 2:00-4:00' },
        { maintenanceWindow: 'Sun 24:00-25:00' },
        { maintenanceWindow: 'Sun 02:00-02:00' },
        { maintenanceWindow: '' },
      ]
      for (const defaults of wrong) {
        const [key] = Object.keys(defaults)
        await expect(settings(defaults)).rejects.toMatchObject({
          status: 400,
          details: [expect.objectContaining({ path: `body.settings.defaults.${key}` })],
        })
      }
      const org = await system.call(api.orgs.show, { params: { id: bakery.id } })
      expect(org.settings).toEqual({})
    })

    it('that are stored but invalid withhold updates', async () => {
      const { pc, beat, release, service, bakery } = await setUp()
      await release('1.0.0', { promoted: true })
      for (const defaults of [{ maintenanceWindow: 'at night' }, { agentUpdatePolicy: 'weekly' }]) {
        await service.storage.write((tx) =>
          tx
            .updateTable('organizations')
            .set({ settings: JSON.stringify({ defaults }) })
            .where('id', '=', bakery.id)
            .execute(),
        )
        expect(await beat(pc)).toBeNull()
      }
    })
  })

  describe('an update', () => {
    const begun = { targetVersion: '1.0.0', state: 'updating' } as const

    it('is shown while the old version still reports, and ends with the new one', async () => {
      const { pc, beat, say, show, clock } = await setUp()
      await say(pc, begun)
      const update = { version: '1.0.0', state: 'updating', since: clock(), reason: null }
      expect(await show(pc)).toMatchObject({ status: 'updating', update })
      clock.forward(60)
      await beat(pc)
      await say(pc, begun)
      expect(await show(pc)).toMatchObject({ status: 'updating', update, lastSeenAt: clock() })
      await beat(pc, '1.0.0')
      expect(await show(pc)).toMatchObject({ status: 'online', update: null, agentVersion: '1.0.0' })
    })

    it('may be reported over the connection of the agent', async () => {
      const { pc, show, service } = await setUp()
      const agent = await RawAgent.connect(service.url, { agentId: pc.agentId, agentToken: pc.authToken })
      agent.say({ type: 'update_status', ...begun })
      await vi.waitFor(async () => expect((await show(pc)).status).toBe('updating'), { timeout: 30_000 })
      agent.say({ type: 'update_status', targetVersion: '1.0.0', state: 'refused', reason: 'tampered' })
      await vi.waitFor(
        async () =>
          expect(await show(pc)).toMatchObject({
            status: 'online',
            update: { state: 'refused', reason: 'tampered' },
          }),
        { timeout: 30_000 },
      )
    })

    it('that takes over five minutes marks a reporting device offline until it reports again', async () => {
      const { pc, beat, say, show, clock, check } = await setUp()
      await say(pc, begun)
      clock.forward(300)
      await beat(pc)
      expect(await check()).toEqual([])
      clock.forward(1)
      expect(await check()).toEqual([expect.objectContaining({ id: pc.deviceId, status: 'offline' })])
      expect(await check()).toEqual([])
      expect(await show(pc)).toMatchObject({
        status: 'offline',
        update: {
          version: '1.0.0',
          state: 'failed',
          since: clock(),
          reason: 'It took longer than 5 minutes',
        },
      })
      await beat(pc)
      expect(await show(pc)).toMatchObject({ status: 'online', update: { state: 'failed' } })
      await beat(pc, '1.0.0')
      expect(await show(pc)).toMatchObject({ status: 'online', update: null })
    })

    it('has five minutes also on a silent device', async () => {
      const { pc, beat, say, show, clock, check } = await setUp()
      await beat(pc)
      clock.forward(200)
      await say(pc, begun)
      clock.forward(200)
      await check()
      expect((await show(pc)).status).toBe('updating')
      clock.forward(101)
      await check()
      expect((await show(pc)).status).toBe('offline')
    })

    it('ends when the agent reports its failure', async () => {
      const { pc, say, show, clock } = await setUp()
      for (const state of ['failed', 'refused', 'rolled_back'] as const) {
        await say(pc, begun)
        clock.forward(10)
        await say(pc, { targetVersion: '1.0.0', state, reason: 'The checksum differs' })
        expect(await show(pc)).toMatchObject({
          status: 'online',
          update: { version: '1.0.0', state, since: clock(), reason: 'The checksum differs' },
        })
      }
    })

    it('that ends in an unexpected version has failed', async () => {
      const { pc, say, beat, show } = await setUp()
      await say(pc, begun)
      await beat(pc, '0.9.0')
      expect(await show(pc)).toMatchObject({
        status: 'online',
        agentVersion: '0.9.0',
        update: { version: '1.0.0', state: 'failed', reason: 'Reports 0.9.0 instead' },
      })
    })

    it('does not end maintenance', async () => {
      const { pc, say, beat, show, put, clock, check } = await setUp()
      await put({ status: 'maintenance' })
      await say(pc, begun)
      expect(await show(pc)).toMatchObject({ status: 'maintenance', update: { state: 'updating' } })
      clock.forward(301)
      expect(await check()).toEqual([expect.objectContaining({ status: 'maintenance' })])
      expect(await show(pc)).toMatchObject({ status: 'maintenance', update: { state: 'failed' } })
      await say(pc, begun)
      await beat(pc, '1.0.0')
      expect(await show(pc)).toMatchObject({ status: 'maintenance', update: null })
    })

    it('that failed is audited once, without secrets in its reason; a successful one is not', async () => {
      const { pc, say, beat, system, bakery } = await setUp()
      const reason = 'Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789'
      await say(pc, begun)
      await say(pc, { targetVersion: '1.0.0', state: 'refused', reason })
      await say(pc, { targetVersion: '1.0.0', state: 'refused', reason })
      await say(pc, { targetVersion: '1.1.0', state: 'updating' })
      await beat(pc, '1.1.0')
      const query = { orgId: bakery.id, action: 'agent.update.status' }
      const { data: entries } = await system.call(api.auditLogs.list, { query })
      expect(entries).toEqual([
        expect.objectContaining({
          result: 'failure',
          resource: { type: 'device', id: pc.deviceId, name: 'pc' },
          details: expect.objectContaining({ targetVersion: '1.0.0', state: 'refused' }),
        }),
      ])
      expect(JSON.stringify(entries)).not.toContain('abcdefghijklmnopqrstuvwxyz')
    })
  })
})
