import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { checkLiveness } from '../../src/devices/jobs.ts'
import { inTurn } from '../databases.ts'
import { begin } from '../devices/device-fixture.ts'
import { listen } from '../events/listener.ts'
import { testClock } from '../harness.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  const start = async () => {
    const clock = testClock(new Date().toISOString())
    const stage = await begin(open, { clock })
    const { service, enroll } = stage
    const { agentId, deviceId, authToken, watchdogAuthToken } = await enroll('till-1')
    const params = { id: agentId }
    const beating =
      (token: string) =>
      (more: Record<string, unknown> = {}) =>
        service.client(token).call(api.agents.heartbeat, {
          params,
          body: { status: 'ok', agentVersion: '0.1.0', ...more } as never,
        })
    const watch = () => checkLiveness(service.storage, { offlineAfterSeconds: 300 }, clock())
    const device = () => stage.show(deviceId)
    const both = { agent: beating(authToken), watchdog: beating(watchdogAuthToken) }
    return { ...stage, ...both, clock, params, deviceId, authToken, watchdogAuthToken, watch, device }
  }

  describe('a watchdog', () => {
    it('has its own token, and reports itself', async () => {
      const { watchdog, clock, device } = await start()
      expect(await device()).toMatchObject({
        watchdogStatus: null,
        watchdogSeenAt: null,
        watchdogVersion: null,
      })
      await watchdog({ role: 'watchdog', watchdogVersion: '1.4.0' })
      expect(await device()).toMatchObject({
        watchdogStatus: 'connected',
        watchdogSeenAt: clock(),
        watchdogVersion: '1.4.0',
        mainSilentSince: null,
      })
    })

    it('keeps no device online: what it reports about the device does not count', async () => {
      const { watchdog, clock, device, watch } = await start()
      const before = await device()
      clock.forward(301)
      const said = { agentVersion: '9.9.9', hostname: 'other', metrics: { cpuPercent: 5 }, autoUpdate: false }
      await watchdog(said)
      const { watchdogStatus, watchdogSeenAt, updatedAt, ...rest } = await device()
      expect({ ...before, ...rest }).toEqual({ ...before, ...rest, metrics: null })
      expect(rest).toMatchObject({ lastSeenAt: before.lastSeenAt, agentVersion: '0.1.0', hostname: 'till-1' })
      await watch()
      expect(await device()).toMatchObject({ status: 'offline', watchdogStatus: 'connected' })
    })

    it('reports a silent agent, until the agent reports itself', async () => {
      const { agent, watchdog, clock, device } = await start()
      const mainSilentSince = clock()
      clock.forward(60)
      await watchdog({ mainSilentSince })
      expect(await device()).toMatchObject({ watchdogStatus: 'failover', mainSilentSince })
      await agent()
      expect(await device()).toMatchObject({ watchdogStatus: 'connected', mainSilentSince: null })
      await watchdog({ mainSilentSince })
      await watchdog()
      expect(await device()).toMatchObject({ watchdogStatus: 'connected', mainSilentSince: null })
    })

    it('that falls silent is offline, once, with an event, while its agent stays online', async () => {
      const { agent, watchdog, clock, device, watch, service, bakery } = await start()
      const received = await listen(service, bakery.id)
      await watchdog()
      clock.forward(300)
      await agent()
      await watch()
      expect((await device()).watchdogStatus).toBe('connected')
      clock.forward(1)
      await watch()
      await watch()
      expect(await device()).toMatchObject({ watchdogStatus: 'offline', status: 'online' })
      const offlineEvents = (await received()).filter(({ data }) => data.watchdogStatus === 'offline')
      expect(offlineEvents.map(({ type }) => type)).toEqual(['device.updated'])
      await watchdog()
      expect((await device()).watchdogStatus).toBe('connected')
    })

    it('submits logs and reads its configuration, but submits neither inventory nor event logs', async () => {
      const { service, params, watchdogAuthToken } = await start()
      const client = service.client(watchdogAuthToken)
      const now = new Date().toISOString()
      const entry = { timestamp: now, level: 'warn', component: 'watchdog', message: 'restarted' } as const
      expect(await client.call(api.diagnosticLogs.submit, { params, body: { logs: [entry] } })).toEqual({
        received: 1,
      })
      expect(await client.call(api.agents.config, { params })).toEqual({
        heartbeatIntervalSeconds: 60,
        metricsCollectionIntervalSeconds: 30,
        enabledCollectors: ['hardware', 'software', 'metrics', 'network'],
        autoUpdate: true,
      })
      const refused = failing(403, 'agent_role_required')
      await expect(client.call(api.agents.inventory, { params, body: { network: [] } })).rejects.toEqual(
        refused,
      )
      await expect(client.call(api.eventLogs.submit, { params, body: { events: [] } })).rejects.toEqual(
        refused,
      )
    })

    it('cannot act as the agent, nor the agent as the watchdog', async () => {
      const { agent, watchdog, device } = await start()
      const refused = failing(401, 're_enrollment_required')
      await expect(agent({ role: 'watchdog' })).rejects.toEqual(refused)
      await expect(watchdog({ role: 'agent' })).rejects.toEqual(refused)
      expect((await device()).watchdogStatus).toBe(null)
      await agent({ role: 'agent' })
      await watchdog({ role: 'something new' })
      expect((await device()).watchdogStatus).toBe('connected')
    })

    it('is refused with the token of another device', async () => {
      const { service, enroll, params } = await start()
      const other = await enroll('till-2')
      const body = { status: 'ok', agentVersion: '0.1.0' } as const
      const beat = service.client(other.watchdogAuthToken).call(api.agents.heartbeat, { params, body })
      await expect(beat).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
    })

    it('has its own rate limit, as each agent has', async () => {
      const env = { RATE_LIMIT_AGENT: '3/60' }
      const { service, enroll } = await begin(open, { env })
      const [one, two] = [await enroll('till-1'), await enroll('till-2')]
      const beat = ({ agentId: id }: { agentId: string }, token: string) =>
        service.client(token).call(api.agents.heartbeat, {
          params: { id },
          body: { status: 'ok', agentVersion: '0.1.0' },
        })
      for (let n = 0; n < 3; n++) await beat(one, one.authToken)
      await expect(beat(one, one.authToken)).rejects.toMatchObject({ status: 429, code: 'rate_limited' })
      await beat(one, one.watchdogAuthToken)
      await beat(two, two.authToken)
      const config = service.client(one.authToken).call(api.agents.config, { params: { id: one.agentId } })
      await expect(config).rejects.toMatchObject({ status: 429, retryAfter: expect.any(Number) })
    })
  })

  it('an agent reports its auto-update setting, and is told when the decision differs', async () => {
    const { agent, device, service, deviceId } = await start()
    expect((await device()).autoUpdate).toEqual({ desired: true, acknowledged: null })
    expect((await agent()).configUpdate).toBeNull()
    expect((await agent({ autoUpdate: true })).configUpdate).toBeNull()
    expect((await device()).autoUpdate).toEqual({ desired: true, acknowledged: true })
    expect((await agent({ autoUpdate: false })).configUpdate).toEqual({ autoUpdate: true })
    expect((await device()).autoUpdate).toEqual({ desired: true, acknowledged: false })
    await service.storage.write((tx) =>
      tx.updateTable('devices').set({ auto_update: 0 }).where('id', '=', deviceId).execute(),
    )
    expect((await agent({ autoUpdate: true })).configUpdate).toEqual({ autoUpdate: false })
    expect((await agent({ autoUpdate: false })).configUpdate).toBeNull()
  })
})
