import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { AgentAuditBuffer } from '../../daemon/agent-audit-buffer.ts'
import { AgentEventBuffer } from '../../daemon/agent-event-buffer.ts'
import { Limiter } from '../../daemon/limiter.ts'
import { api } from '../../src/api.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import type { Limits } from '../../src/core/limits.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemClock } from '../../src/core/time.ts'
import { happening } from '../audit/rows.ts'
import { inTurn, openMigrated } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { RawAgent } from '../live/raw-agent.ts'
import { metricValues } from '../metric-values.ts'
import { addWebhook, buildWorld } from '../world.ts'

/** Of a database that takes writes. */
const openGate = { closure: undefined }

const tooMany = expect.objectContaining({ status: 429, code: 'rate_limited' })

inTurn((open) => {
  const start = async (env: Record<string, string> = {}) => {
    const clock = testClock()
    const settings = { METRICS_TOKEN: 'a token for metrics', TRUST_PROXY_HEADERS: 'true', ...env }
    const service = await startService(open, { clock, env: settings })
    const world = await buildWorld(service)
    const { bakery, garage } = world.orgs
    const of = (org: typeof bakery) => {
      const agent = service.client(org.agentToken)
      const params = { id: org.agentId }
      return {
        params,
        agent,
        handIn: (name: string) =>
          agent.call(api.eventLogs.submit, {
            params,
            body: {
              events: [
                {
                  timestamp: clock(),
                  level: 'info',
                  category: 'system',
                  source: 'x',
                  eventId: name,
                  message: name,
                } as const,
              ],
            },
          }),
        beatFrom: (ip: string) =>
          service
            .client(org.agentToken, { 'x-forwarded-for': ip })
            .call(api.agents.heartbeat, { params, body: { status: 'ok', agentVersion: '0.1.0' } }),
        updating: (n: number) =>
          agent.call(api.agentUpdates.status, {
            params,
            body: { targetVersion: '9.9.9', state: n % 2 ? 'failed' : 'refused' },
          }),
      }
    }
    return {
      clock,
      service,
      world,
      bakery: of(bakery),
      garage: of(garage),
      org: bakery,
      entriesSince: await newEntries(service),
    }
  }

  describe('the audit log', () => {
    it('gathers what an agent submits too often in one entry, apart from other devices', async () => {
      const { bakery, garage, entriesSince, clock, service } = await start({
        RATE_LIMIT_AGENT_AUDIT: '5/3600',
      })
      for (let n = 0; n < 12; n++) {
        await bakery.handIn(`entry ${n}`)
        clock.forward(1)
      }
      await garage.handIn('one')
      const entries = await entriesSince()
      expect(entries.map(({ action }) => action)).toEqual(Array(6).fill('agent.eventlogs.submit'))
      const headers = { authorization: 'Bearer a token for metrics' }
      const metrics = await (await fetch(`${service.url}/metrics`, { headers })).text()
      expect(metrics).toContain('\nsvc_agent_audit_gathered_total 7\n')
      expect(await service.storage.read.selectFrom('device_event_logs').select('id').execute()).toHaveLength(
        13,
      )
    })

    it('gathers refusals of an agent as well, one entry per kind', async () => {
      const { org, world, service, entriesSince } = await start({ RATE_LIMIT_AGENT_AUDIT: '3/3600' })
      const command = await service.client(world.tokens.bakery).call(api.deviceCommands.create, {
        params: { id: org.deviceId },
        body: { type: 'collect', payload: { what: ['logs'] }, targetRole: 'watchdog' },
      })
      await service.storage.write((tx) =>
        tx
          .updateTable('agent_commands')
          .set({ status: 'sent', sent_count: 1 })
          .where('id', '=', command.id)
          .execute(),
      )
      await entriesSince()
      const params = { id: org.agentId, commandId: command.id }
      for (let n = 0; n < 20; n++) {
        const answer = service.client(org.agentToken).call(api.agentCommands.result, {
          params,
          body: { status: 'completed' },
        })
        await expect(answer).rejects.toEqual(expect.objectContaining({ code: 'command_role_mismatch' }))
      }
      expect((await entriesSince()).map(({ result }) => result)).toEqual(['denied', 'denied', 'denied'])
    })

    it('has no entry for what changes nothing: a late result, a repeated confirmation', async () => {
      const { bakery, org, world, service, entriesSince } = await start()
      const { id: commandId } = await service.client(world.tokens.bakery).call(api.deviceCommands.create, {
        params: { id: org.deviceId },
        body: { type: 'collect', payload: { what: ['logs'] } },
      })
      await bakery.agent.call(api.agentCommands.list, { params: bakery.params })
      await entriesSince()
      const answer = () =>
        bakery.agent.call(api.agentCommands.result, {
          params: { ...bakery.params, commandId },
          body: { status: 'completed' },
        })
      for (let n = 0; n < 5; n++) await answer()
      const { authToken } = await bakery.agent.call(api.agentTokens.rotate, { params: bakery.params })
      const renewed = service.client(authToken)
      for (let n = 0; n < 5; n++) await renewed.call(api.agentTokens.confirm, { params: bakery.params })
      expect((await entriesSince()).map(({ action }) => action)).toEqual([
        'agent.command.result',
        'agent.token.rotate',
        'agent.token.confirm',
      ])
    })

    it('has an entry for each change of tokens and updates, which are rate-limited', async () => {
      const { bakery, org, service, entriesSince } = await start({ RATE_LIMIT_AGENT_CHANGES: '4/3600' })
      const { params } = bakery
      for (let n = 0; n < 2; n++) await bakery.agent.call(api.agentTokens.rotate, { params })
      for (let n = 0; n < 2; n++) await bakery.updating(n)
      await expect(bakery.updating(2)).rejects.toEqual(tooMany)
      await expect(bakery.agent.call(api.agentTokens.rotate, { params })).rejects.toEqual(tooMany)
      await expect(bakery.agent.call(api.agentTokens.confirm, { params })).rejects.toEqual(tooMany)
      const connected = await RawAgent.connect(service.url, org)
      connected.say({ type: 'update_status', targetVersion: '9.9.9', state: 'rolled_back' })
      expect(await connected.frame(({ type }) => type === 'error')).toMatchObject({
        code: 'PROCESSING_ERROR',
        messageType: 'update_status',
      })
      const actions = (await entriesSince()).map(({ action }) => action)
      expect(actions.filter((action) => action === 'agent.token.rotate')).toHaveLength(2)
      expect(actions.filter((action) => action === 'agent.update.status')).toHaveLength(2)
    })

    it('has at most a hundred addresses of one agent per day', async () => {
      const { bakery, entriesSince, clock } = await start()
      await bakery.beatFrom('203.0.113.1')
      await entriesSince()
      for (let n = 0; n < 130; n++) await bakery.beatFrom(`2001:db8::${n.toString(16)}`)
      const entries = await entriesSince()
      expect(entries.length).toBeGreaterThan(90)
      expect(entries.length).toBeLessThanOrEqual(100)
      clock.forward(86_401)
      await bakery.beatFrom('203.0.113.9')
      expect(await entriesSince()).toHaveLength(1)
    })
  })

  it('events about frequent changes of an agent are gathered into one with the latest state', async () => {
    const { bakery, org, service, clock } = await start({ RATE_LIMIT_AGENT_EVENTS: '3/3600' })
    const { storage } = service
    await addWebhook(service, org.id, 'updated', ['device.updated'])
    const events = new AgentEventBuffer(
      new Limiter({ AGENT_EVENTS: { count: 1, seconds: 3600 } } as Limits),
      new Registry(),
      openGate,
    )
    const beat = (hostname: string) =>
      bakery.agent.call(api.agents.heartbeat, {
        params: bakery.params,
        body: { status: 'ok', agentVersion: '0.1.0', hostname },
      })
    for (let n = 0; n < 10; n++) await beat(`till-${n}`)
    const emitted = async () => {
      const deliveries = storage.read.selectFrom('webhook_deliveries').select('payload').orderBy('seq')
      const rows = await deliveries.where('event', '=', 'device.updated').execute()
      return rows.map(({ payload }) => (JSON.parse(payload) as { hostname: string }).hostname)
    }
    await expect.poll(emitted, { timeout: 10_000 }).toEqual(['till-0', 'till-1', 'till-2'])
    // The running service emits the gathered ones every ten minutes: the same by hand.
    for (let n = 0; n < 3; n++) events.emitsNow(org.deviceId, ['hostname', 'os_version'])
    await events.write(storage, clock())
    await expect.poll(emitted, { timeout: 10_000 }).toEqual(['till-0', 'till-1', 'till-2', 'till-9'])
    expect(events.size).toBe(0)
  })
})

describe('delayed events about devices', () => {
  it('are kept for at most 100,000 devices: those of others are emitted immediately', () => {
    const waiting = new AgentEventBuffer(
      new Limiter({ AGENT_EVENTS: { count: 0, seconds: 3600 } } as Limits),
      new Registry(),
      openGate,
    )
    // The first change of each device is emitted at once.
    for (let n = 0; n < 100_000; n++) {
      expect(waiting.emitsNow(`${n}`, ['hostname']) && waiting.emitsNow(`${n}`, ['hostname'])).toBe(false)
    }
    expect(waiting.size).toBe(100_000)
    waiting.emitsNow('one more', ['hostname'])
    expect(waiting.emitsNow('one more', ['hostname'])).toBe(true)
    expect(waiting.emitsNow('7', ['os_version'])).toBe(false)
  })
})

describe('gathered audit entries', () => {
  const entriesOf = (metrics = new Registry()) =>
    new AgentAuditBuffer(
      new Limiter({ AGENT_AUDIT: { count: 1, seconds: 3600 } } as Limits),
      metrics,
      openGate,
    )
  const draft = (actorId: string, at: string, more: object = {}) =>
    toDraftEntry(happening(null, { actorType: 'agent', actorId, action: 'thing.happen', ...more }), at)

  it('are written as the last of each kind with a count; they stay when the write fails', async () => {
    const { storage } = await openMigrated('sqlite')
    const metrics = new Registry()
    const all = entriesOf(metrics)
    const id = newId()
    expect(all.isDue(draft(id, '2026-01-31T12:00:00.000Z'))).toBe(true)
    for (const second of [1, 2, 3])
      expect(all.isDue(draft(id, `2026-01-31T12:00:0${second}.000Z`, { details: { second } }))).toBe(false)
    expect(all.isDue(draft(id, '2026-01-31T12:00:04.000Z', { result: 'denied' }))).toBe(false)
    const broken = { write: () => Promise.reject(new Error('it is away')) } as unknown as typeof storage
    await expect(all.write(broken, systemClock())).rejects.toThrow('it is away')
    expect(all.size).toBe(2)
    await all.write(storage, '2026-01-31T13:00:00.000Z')
    expect(all.size).toBe(0)
    const rows = await storage.read.selectFrom('audit_logs').select('canonical').orderBy('seq').execute()
    expect(rows.map(({ canonical }) => JSON.parse(canonical))).toMatchObject([
      {
        timestamp: '2026-01-31T13:00:00.000Z',
        actorId: id,
        details: {
          second: 3,
          gathered: { count: 3, since: '2026-01-31T12:00:01.000Z', until: '2026-01-31T12:00:03.000Z' },
        },
      },
      { result: 'denied', details: { gathered: { count: 1 } } },
    ])
    await all.write(storage, systemClock())
    expect(await storage.read.selectFrom('audit_logs').select('id').execute()).toHaveLength(2)
    expect(await metricValues(metrics, 'svc_agent_audit_gathered_total')).toEqual({ '': 4 })
  })

  it('have at most 10,000 kinds: entries of other kinds are written immediately', () => {
    const all = entriesOf()
    const id = newId()
    all.isDue(draft(id, systemClock()))
    for (let n = 0; n < 10_000; n++)
      expect(all.isDue(draft(id, systemClock(), { action: `${n}` }))).toBe(false)
    expect(all.isDue(draft(id, systemClock(), { action: 'one more' }))).toBe(true)
    expect(all.isDue(draft(id, systemClock(), { action: '7' }))).toBe(false)
    expect(all.size).toBe(10_000)
  })
})
