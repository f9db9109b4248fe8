import { generateSync } from 'otplib'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { checkLiveness } from '../../src/devices/jobs.ts'
import { inTurn } from '../databases.ts'
import { adminPassword, startService, testClock } from '../harness.ts'
import { addPerson, scenarioTools } from '../laws/scenarios.ts'
import { buildWorld } from '../world.ts'
import { listen } from './listener.ts'

inTurn((open) => {
  /** A service, and the events that the bakery's webhook received since the last call. */
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const listenTo = async (orgId: string) => {
      const all = await listen(service, orgId)
      let seen = 0
      return async () => {
        const fresh = (await all()).slice(seen)
        seen += fresh.length
        return fresh
      }
    }
    const client = service.client(world.tokens.bakery)
    const { id: by } = (await client.call(api.auth.me)).user
    return {
      clock,
      service,
      world,
      bakery,
      client,
      by,
      listen: listenTo,
      receivedEvents: await listenTo(bakery.id),
    }
  }

  describe('webhooks receive the events', () => {
    it('of a device: enrolled, updated, offline, online and decommissioned', async () => {
      const { clock, service, bakery, client, by, receivedEvents, world } = await start()
      const system = service.client(world.tokens.system)
      const key = await system.call(api.enrollmentKeys.create, { body: { orgId: bakery.id, name: 'k' } })
      const machine = {
        osType: 'linux',
        osVersion: '12',
        architecture: 'x64',
        agentVersion: '1.0.0',
      } as const
      const enrolled = await service.client().call(api.agents.enroll, {
        body: { enrollmentKey: key.key, hostname: 'till-1', ...machine },
      })
      const { deviceId, agentId, authToken } = enrolled
      const named = { deviceId, hostname: 'till-1' }
      const enrolment = { siteId: null, osType: 'linux', agentVersion: '1.0.0', enrollmentKeyId: key.id }
      expect(await receivedEvents()).toEqual([
        {
          type: 'device.enrolled',
          data: { ...named, ...enrolment, reenrolled: false, possibleReplacementOf: null },
        },
      ])

      const agent = service.client(authToken)
      const beat = (agentVersion: string, more = {}) =>
        agent.call(api.agents.heartbeat, {
          params: { id: agentId },
          body: { agentVersion, status: 'ok', lastUser: clock(), ...more },
        })
      await beat('1.0.0')
      expect(await receivedEvents()).toEqual([])
      await beat('1.1.0', { pendingReboot: true })
      expect(await receivedEvents()).toEqual([
        {
          type: 'device.updated',
          data: {
            ...named,
            fields: ['agentVersion', 'pendingReboot'],
            agentVersion: '1.1.0',
            pendingReboot: true,
          },
        },
      ])

      const params = { id: deviceId }
      await client.call(api.devices.update, { params, body: { displayName: 'Till', addTags: ['shop'] } })
      await client.call(api.devices.tag, { body: { deviceIds: [deviceId, bakery.deviceId], add: ['shop'] } })
      const other = { deviceId: bakery.deviceId, hostname: 'bakery-pc' }
      expect(await receivedEvents()).toEqual([
        {
          type: 'device.updated',
          data: { ...named, fields: ['displayName', 'tags'], displayName: 'Till', tags: ['shop'] },
        },
        { type: 'device.updated', data: { ...other, fields: ['tags'], tags: ['shop'] } },
      ])

      const lastSeenAt = clock()
      clock.forward(301)
      await checkLiveness(service.storage, { offlineAfterSeconds: 300 }, clock())
      const offline = await receivedEvents()
      expect(offline).toHaveLength(2)
      expect(offline).toContainEqual({
        type: 'device.offline',
        data: { ...named, displayName: 'Till', lastSeenAt },
      })
      await checkLiveness(service.storage, { offlineAfterSeconds: 300 }, clock())
      await beat('1.1.0')
      expect(await receivedEvents()).toEqual([
        { type: 'device.online', data: { ...named, agentVersion: '1.1.0', status: 'online' } },
      ])

      await client.call(api.devices.maintenance, { params, body: { enable: true, durationHours: 1 } })
      const maintenanceUntil = new Date(Date.parse(clock()) + 3_600_000).toISOString()
      await client.call(api.devices.decommission, { params })
      await client.call(api.devices.restore, { params })
      expect(await receivedEvents()).toEqual([
        {
          type: 'device.updated',
          data: { ...named, fields: ['status', 'maintenanceUntil'], status: 'maintenance', maintenanceUntil },
        },
        { type: 'device.decommissioned', data: { ...named, decommissionedBy: by } },
        { type: 'device.updated', data: { ...named, fields: ['status'], status: 'offline' } },
      ])
    })

    it('of an agent update: started and ended', async () => {
      const { clock, service, bakery, receivedEvents } = await start()
      const agent = service.client(bakery.agentToken)
      const params = { id: bakery.agentId }
      const named = { deviceId: bakery.deviceId, hostname: 'bakery-pc' }
      const say = (state: 'updating' | 'rolled_back') =>
        agent.call(api.agentUpdates.status, { params, body: { targetVersion: '1.0.0', state } })
      const beat = (agentVersion: string) =>
        agent.call(api.agents.heartbeat, { params, body: { agentVersion, status: 'ok' } })
      const updated = (data: Record<string, unknown>) => ({
        type: 'device.updated',
        data: { ...data, ...named, fields: Object.keys(data) },
      })

      await say('updating')
      await beat('0.1.0')
      expect(await receivedEvents()).toEqual([updated({ status: 'updating' })])
      await beat('1.0.0')
      expect(await receivedEvents()).toEqual([updated({ agentVersion: '1.0.0', status: 'online' })])
      await say('updating')
      await say('rolled_back')
      expect(await receivedEvents()).toEqual([updated({ status: 'updating' }), updated({ status: 'online' })])
      await say('updating')
      clock.forward(301)
      await beat('1.0.0')
      await beat('0.1.0')
      await say('updating')
      await receivedEvents()
      clock.forward(301)
      await checkLiveness(service.storage, { offlineAfterSeconds: 3600 }, clock())
      expect(await receivedEvents()).toEqual([
        {
          type: 'device.offline',
          data: { ...named, displayName: null, lastSeenAt: expect.any(String) },
        },
      ])
      await beat('0.1.0')
      expect(await receivedEvents()).toEqual([
        { type: 'device.online', data: { ...named, agentVersion: '0.1.0', status: 'online' } },
      ])
    })

    it('of an alert: triggered, acknowledged, escalated and resolved', async () => {
      const { bakery, client, by, receivedEvents } = await start()
      const { deviceId } = bakery
      const body = { deviceId, severity: 'high', title: 'Disk full', ruleId: 'disk' } as const
      const { id: alertId } = await client.call(api.alerts.create, { body })
      const params = { id: alertId }
      await client.call(api.alerts.acknowledge, { params })
      await client.call(api.alerts.escalate, { params })
      await client.call(api.alerts.resolve, { params, body: { resolutionNote: 'Cleaned' } })
      const which = { alertId, ruleId: 'disk', deviceId }
      expect(await receivedEvents()).toEqual([
        { type: 'alert.triggered', data: { ...which, severity: 'high', title: 'Disk full', message: null } },
        { type: 'alert.acknowledged', data: { ...which, acknowledgedBy: by } },
        { type: 'alert.escalated', data: { ...which, severity: 'high', escalatedBy: by } },
        { type: 'alert.resolved', data: { ...which, resolvedBy: by, resolutionNote: 'Cleaned' } },
      ])
    })

    it('of a member: sign-in with and without a second factor, and sign-out', async () => {
      const { service, world, clock, listen } = await start()
      const person = await addPerson(scenarioTools(service, world, clock))
      const receivedEvents = await listen(person.org.id)
      const { id: userId, email } = person
      const body = { email, password: adminPassword }
      const first = await service.client().call(api.auth.login, { body })
      const token = (first.tokens as { accessToken: string }).accessToken
      const who = { userId, email, ipAddress: '127.0.0.1' }
      expect(await receivedEvents()).toEqual([
        { type: 'user.login', data: { ...who, method: 'password', mfa: false } },
      ])
      const signedIn = service.client(token)
      const { secret } = await signedIn.call(api.auth.setupMfa)
      const code = () => generateSync({ secret, epoch: Date.parse(clock()) / 1000 })
      await signedIn.call(api.auth.enableMfa, { body: { code: code() } })
      expect(await receivedEvents()).toEqual([])
      clock.forward(60)
      const second = await service.client().call(api.auth.login, { body })
      expect([second.mfaRequired, await receivedEvents()]).toEqual([true, []])
      const { tempToken } = second as { tempToken: string }
      const verified = await service.client().call(api.auth.verifyMfa, { body: { tempToken, code: code() } })
      await service.client((verified.tokens as { accessToken: string }).accessToken).call(api.auth.logout)
      expect(await receivedEvents()).toEqual([
        { type: 'user.login', data: { ...who, method: 'totp', mfa: true } },
        { type: 'user.logout', data: { ...who, mfa: true } },
      ])
    })

    it('of nothing that was refused or rolled back', async () => {
      const { client, receivedEvents } = await start()
      const body = { deviceId: '0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a', severity: 'high', title: 'x' } as const
      await expect(client.call(api.alerts.create, { body })).rejects.toThrow()
      expect(await receivedEvents()).toEqual([])
    })
  })

  describe('an event created through the API', () => {
    it('requires all permissions, in an organization within reach', async () => {
      const { service, world, bakery, receivedEvents } = await start()
      const { system, acme, acmeNone, bakery: own } = world.tokens
      const body = {
        orgId: bakery.id,
        type: 'policy.violation',
        data: { policyId: 'p', deep: { n: [1, null] } },
      } as const
      const raise = (token: string) => service.client(token).call(api.events.create, { body })
      const raised = await raise(system)
      expect(raised).toEqual({
        id: expect.any(String),
        type: body.type,
        timestamp: expect.any(String),
        orgId: bakery.id,
      })
      await raise(acme)
      await expect(raise(own)).rejects.toEqual(expect.objectContaining({ status: 403 }))
      await expect(raise(acmeNone)).rejects.toEqual(expect.objectContaining({ status: 403 }))
      expect(await receivedEvents()).toEqual(Array(2).fill({ type: body.type, data: body.data }))
    })

    it('has a known type and data of at most 64 KiB', async () => {
      const { service, world, bakery } = await start()
      const raise = (type: string, data: unknown) =>
        service
          .client(world.tokens.system)
          .call(api.events.create, { body: { orgId: bakery.id, type: type as never, data: data as never } })
      const refused = expect.objectContaining({ status: 400 })
      await expect(raise('patch.eaten', {})).rejects.toEqual(refused)
      await expect(raise('webhook.test', {})).rejects.toEqual(refused)
      await expect(raise('patch.failed', [])).rejects.toEqual(refused)
      await expect(raise('patch.failed', { a: 'x'.repeat(65_536) })).rejects.toEqual(refused)
      expect(await raise('patch.failed', { a: 'x'.repeat(65_000) })).toMatchObject({ type: 'patch.failed' })
    })
  })
})
