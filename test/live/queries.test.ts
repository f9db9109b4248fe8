import { beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import { inTurn } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { addOrg, buildWorld, type Org, type World } from '../world.ts'
import { type Asked, RawAgent, refusedUpgrade } from './raw-agent.ts'

const event = {
  recordId: 7,
  level: 'Error',
  timeCreated: '2026-03-01T12:00:00+01:00',
  source: 'kernel',
  message: 'I/O error',
}
const logs = [
  { name: 'System', displayName: 'The system', recordCount: 12, maxSizeBytes: 4096 },
  { name: 'Auth', displayName: '', recordCount: 0, maxSizeBytes: 0, retentionDays: 0, lastWriteTime: '' },
]

/** An agent with two logs. */
const answers = ({ type, payload }: Asked) => {
  if (type === 'event_logs_list') return { result: { logs } }
  if (payload.logName !== 'System') {
    return { status: 'failed', error: 'Event log not found', code: 'log_not_found' }
  }
  if (type === 'event_logs_query')
    return { result: { events: [event, { ...event, recordId: 6 }], total: 12 } }
  if (payload.recordId === 7) return { result: event }
  return { status: 'failed', error: 'Event not found', code: 'record_not_found' }
}

inTurn((open) => {
  let service: TestService
  let world: World
  let addAcmeOrg: (slug: string) => Promise<Org>
  let system: Client

  beforeAll(async () => {
    service = await serviceOn(await open(), { env: { LIVE_QUERY_TIMEOUT_MS: '1500' } })
    world = await buildWorld(service)
    system = service.client(world.tokens.system)
    addAcmeOrg = (slug) => addOrg(service, world.tokens.system, world.partners.acme, slug)
    return () => service.close()
  })

  describe('a query to a connected device', () => {
    let bakery: Client
    let deviceId: string
    beforeAll(async () => {
      await RawAgent.connect(service.url, world.orgs.bakery, answers)
      bakery = service.client(world.tokens.bakeryViewer)
      deviceId = world.orgs.bakery.deviceId
    })

    it('returns its logs, with null for unknown fields', async () => {
      const { data } = await bakery.call(api.liveLogs.list, { params: { deviceId } })
      expect(data).toEqual([
        {
          name: 'System',
          displayName: 'The system',
          recordCount: 12,
          maxSize: 4096,
          retentionDays: null,
          lastWriteTime: null,
        },
        {
          name: 'Auth',
          displayName: 'Auth',
          recordCount: 0,
          maxSize: null,
          retentionDays: null,
          lastWriteTime: null,
        },
      ])
    })

    it.each(['liveLogs', 'deviceLogs'] as const)('is answered under both paths: %s', async (group) => {
      const named = { deviceId, name: 'System' }
      expect(await bakery.call(api[group].show, { params: { deviceId, name: 'sYSTEM' } })).toMatchObject({
        name: 'System',
      })
      const page = await bakery.call(api[group].events, { params: named, query: { limit: 1 } })
      expect(page).toMatchObject({ pagination: { page: 1, limit: 1, total: 12 } })
      expect(page.data).toHaveLength(1)
      expect(await bakery.call(api[group].record, { params: { ...named, recordId: '7' } })).toEqual({
        recordId: 7,
        level: 'error',
        timeCreated: '2026-03-01T11:00:00.000Z',
        source: 'kernel',
        message: 'I/O error',
        eventId: 0,
        category: null,
        user: null,
        computer: null,
        rawXml: null,
      })
    })

    it('passes every filter to the agent', async () => {
      const asked: Asked[] = []
      const agent = await RawAgent.connect(service.url, world.orgs.garage, (command) => {
        asked.push(command)
        return { result: { events: [], total: 0 } }
      })
      const query = {
        level: 'verbose' as const,
        source: 'sshd',
        eventId: 4624,
        page: 2,
        limit: 9999,
        startTime: '2026-01-01T00:00:00Z',
        endTime: '2026-01-02T01:00:00+01:00',
      } as const
      const params = { deviceId: world.orgs.garage.deviceId, name: 'Auth' }
      await service.client(world.tokens.garage).call(api.liveLogs.events, { params, query })
      expect(asked[0]).toMatchObject({
        type: 'event_logs_query',
        payload: {
          logName: 'Auth',
          level: 'verbose',
          source: 'sshd',
          eventId: 4624,
          page: 2,
          limit: 500,
          startTime: '2026-01-01T00:00:00.000Z',
          endTime: '2026-01-02T00:00:00.000Z',
        },
      })
      agent.socket.terminate()
    })

    it('that is invalid is refused with its faults, and never reaches the agent', async () => {
      const params = { deviceId, name: 'System' }
      const query = { level: 'loud', startTime: 'soon', eventId: 'x', limit: 'many' } as never
      await expect(bakery.call(api.liveLogs.events, { params, query })).rejects.toMatchObject({
        status: 400,
        details: ['level', 'startTime', 'eventId', 'limit'].map((name) =>
          expect.objectContaining({ path: `query.${name}` }),
        ),
      })
      const backwards = { startTime: '2026-01-02T00:00:00Z', endTime: '2026-01-01T00:00:00Z' }
      await expect(bakery.call(api.liveLogs.events, { params, query: backwards })).rejects.toMatchObject({
        status: 400,
        details: [expect.objectContaining({ path: 'query.endTime' })],
      })
    })

    it('for a missing log or record is 404', async () => {
      const none = { deviceId, name: 'Nothing' }
      const absent = { status: 404, message: 'Event log not found' }
      await expect(bakery.call(api.liveLogs.show, { params: none })).rejects.toMatchObject(absent)
      await expect(bakery.call(api.liveLogs.events, { params: none })).rejects.toMatchObject(absent)
      await expect(
        bakery.call(api.liveLogs.record, { params: { deviceId, name: 'System', recordId: '8' } }),
      ).rejects.toMatchObject({ status: 404, message: 'Event not found' })
    })

    it('is 404 for other organizations', async () => {
      const stranger = service.client(world.tokens.garage)
      await expect(stranger.call(api.liveLogs.list, { params: { deviceId } })).rejects.toMatchObject({
        status: 404,
        message: 'Device not found',
      })
    })

    it('leaves one audit entry, however often it is repeated', async () => {
      const params = { deviceId, name: 'Auth' }
      const ask = () => bakery.call(api.liveLogs.show, { params })
      await ask()
      await ask()
      await system.call(api.auditLogs.list, { query: { orgId: world.orgs.bakery.id } })
      const rows = await service.storage.read
        .selectFrom('audit_logs')
        .select('canonical')
        .where('chain', '=', world.orgs.bakery.id)
        .where('action', '=', 'data.access')
        .execute()
      const about = rows.filter(({ canonical }) => canonical.includes('"log":"Auth"'))
      expect(about).toHaveLength(1)
      expect(JSON.parse(about[0]!.canonical)).toMatchObject({
        resourceType: 'device',
        resourceId: deviceId,
        resourceName: 'bakery-pc',
      })
    })
  })

  describe('a device that does not answer', () => {
    const list = (org: Org) => system.call(api.liveLogs.list, { params: { deviceId: org.deviceId } })

    it('because it is not connected is 409 at once', async () => {
      const org = await addAcmeOrg('apart')
      await expect(list(org)).rejects.toMatchObject({ status: 409, code: 'device_unreachable' })
      await service.storage.write((tx) =>
        tx.updateTable('devices').set({ status: 'offline' }).where('id', '=', org.deviceId).execute(),
      )
      await expect(list(org)).rejects.toMatchObject({
        status: 409,
        code: 'device_offline',
        message: 'Device is offline, cannot execute command',
        details: { status: 'offline', lastSeenAt: expect.anything() },
      })
    })

    it('in time is 504', async () => {
      const org = await addAcmeOrg('slow')
      await RawAgent.connect(service.url, org)
      await expect(list(org)).rejects.toMatchObject({
        status: 504,
        code: 'device_timeout',
        message: 'Command timed out after 1500ms',
      })
    })

    it('because it failed, or sent an invalid result, is 502', async () => {
      const org = await addAcmeOrg('broken')
      const agent = await RawAgent.connect(service.url, org, () => ({
        status: 'failed',
        error: 'disk on fire',
      }))
      await expect(list(org)).rejects.toMatchObject({
        status: 502,
        code: 'device_failed',
        message: 'The agent could not execute the command: disk on fire',
      })
      agent.answer = () => ({ result: { logs: 'many' } })
      await expect(list(org)).rejects.toMatchObject({ status: 502, code: 'device_failed' })
    })

    it('because it is busy is 429, as is a caller with too many queries', async () => {
      const org = await addAcmeOrg('busy')
      const agent = await RawAgent.connect(service.url, org)
      const eight = Array.from({ length: 8 }, () => list(org))
      const asked: string[] = []
      while (asked.length < 8) asked.push(String((await agent.frame((frame) => 'id' in frame)).id))
      await expect(list(org)).rejects.toMatchObject({ status: 429, message: 'Too many live queries at once' })
      const other = service.client(world.tokens.acme)
      await expect(
        other.call(api.liveLogs.list, { params: { deviceId: org.deviceId } }),
      ).rejects.toMatchObject({ status: 429, message: 'Too many live queries to this device at once' })
      for (const id of asked) agent.result(id, { result: { logs } })
      expect((await Promise.all(eight)).map(({ data }) => data.length)).toEqual(Array(8).fill(2))
    })
  })

  describe('the connection of an agent', () => {
    const path = (agentId: string) => `/api/v1/agent-ws/${agentId}/ws`

    it('is refused without the right token in the Authorization header', async () => {
      const { agentId, agentToken } = world.orgs.harbor
      const other = world.orgs.garage.agentToken
      const refused = (at: string, authorization?: string) =>
        refusedUpgrade(service.url, at, authorization ? { authorization } : {})
      expect(await refused(path(agentId))).toMatchObject({ status: 401, body: { code: 'unauthenticated' } })
      expect(await refused(`${path(agentId)}?token=${agentToken}`)).toMatchObject({ status: 401 })
      for (const token of [other, 'svc_nonsense', world.tokens.system]) {
        expect(await refused(path(agentId), `Bearer ${token}`)).toMatchObject({
          status: 401,
          body: { code: 'invalid_agent_credentials' },
        })
      }
      expect(await refused(path('f'.repeat(64)), `Bearer ${agentToken}`)).toMatchObject({ status: 401 })
      expect(await refused('/api/v1/devices', `Bearer ${agentToken}`)).toMatchObject({ status: 401 })
      expect(await refused('/api/v1/nowhere', `Bearer ${agentToken}`)).toMatchObject({ status: 404 })
    })

    it('ends as soon as its device is decommissioned, and is refused afterwards', async () => {
      const org = await addAcmeOrg('gone')
      const agent = await RawAgent.connect(service.url, org, answers)
      await system.call(api.devices.decommission, { params: { id: org.deviceId } })
      expect(await agent.closed).toMatchObject({ code: 4041 })
      expect(
        await refusedUpgrade(service.url, path(org.agentId), { authorization: `Bearer ${org.agentToken}` }),
      ).toMatchObject({ status: 403, body: { code: 'device_decommissioned' } })
      await expect(
        system.call(api.liveLogs.list, { params: { deviceId: org.deviceId } }),
      ).rejects.toMatchObject({ status: 409, message: 'Device is decommissioned, cannot execute command' })
    })

    it('ends when its organization is churned', async () => {
      const org = await addAcmeOrg('ended')
      const agent = await RawAgent.connect(service.url, org, answers)
      await system.call(api.orgs.update, { params: { id: org.id }, body: { status: 'churned' } })
      expect(await agent.closed).toMatchObject({ code: 4001 })
    })

    it('ends when its token is replaced', async () => {
      const org = await addAcmeOrg('retoken')
      const agent = await RawAgent.connect(service.url, org, answers)
      await service.storage.write((tx) =>
        tx.updateTable('devices').set({ token_hash: 'another' }).where('id', '=', org.deviceId).execute(),
      )
      expect(await agent.closed).toMatchObject({ code: 4001 })
    })
  })

  it('the log level of an agent is raised for a while, and that is audited', async () => {
    const org = await addAcmeOrg('chatty')
    const asked: Asked[] = []
    await RawAgent.connect(service.url, org, (command) => {
      asked.push(command)
      return { result: {} }
    })
    const body = { level: 'debug', durationMinutes: 30 } as const
    const { level, until } = await system.call(api.logLevels.set, { params: { id: org.deviceId }, body })
    expect(level).toBe('debug')
    expect(Date.parse(until) - Date.now()).toBeGreaterThan(29 * 60_000)
    expect(asked[0]).toMatchObject({ type: 'set_log_level', payload: body })
  })
})
