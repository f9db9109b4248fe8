import { describe, expect, test } from 'vitest'
import { api } from '../../src/api.ts'
import { fetchTransport } from '../../src/core/client.ts'
import { agentClient } from '../../src/device-agent/connection.ts'
import type { LogPosition } from '../../src/device-agent/log-position.ts'
import { logPositionStore } from '../../src/device-agent/log-position.ts'
import type { NewEventLog } from '../../src/logs/events/contract.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { livingAgents } from './live.ts'
import { agentId, agreeable, authToken, refusal, standIn } from './stand-in.ts'

const { live, stateDir } = livingAgents()

const event = (n: number): NewEventLog => ({
  timestamp: new Date().toISOString(),
  level: 'error',
  category: 'system',
  source: 'kernel',
  eventId: `${n}`,
  message: `message ${n}`,
})

/** A machine with this many new log entries per read; its cursor counts them. */
function logging(count = 1) {
  const asked: LogPosition[] = []
  return {
    asked,
    readHostLogs: async (position: LogPosition, max: number) => {
      asked.push(position)
      const from = Number(position.cursor ?? 0)
      const events = Array.from({ length: Math.min(count, max) }, (_, n) => event(from + n))
      return { events, position: { cursor: `${from + events.length}` } }
    },
  }
}

describe('host logs', () => {
  test('are submitted soon after the start and every 15 minutes, at most 100 entries at a time', async () => {
    await using service = await standIn()
    const { asked, ...machine } = logging(250)
    const { events } = await live(service.url, { seconds: 3590, machine })
    const sent = service.received.filter(({ path }) => path.endsWith('/eventlogs'))
    expect(sent.length).toBe(4)
    expect(sent[0]).toMatchObject({ method: 'PUT', path: `/api/v1/agents/${agentId}/eventlogs` })
    expect(sent[0]!.headers.authorization).toBe(`Bearer ${authToken}`)
    expect(sent.map(({ body }) => (body.events as unknown[]).length)).toEqual([100, 100, 100, 100])
    expect(asked.map(({ cursor }) => cursor)).toEqual([undefined, '100', '200', '300'])
    expect(events).toContainEqual(expect.objectContaining({ event: 'eventlogs', sent: 100, new: 1 }))
    const order = service.received.map(({ path }) => path.split('/').at(-1))
    expect(order.slice(0, 4)).toEqual(['enroll', 'heartbeat', 'inventory', 'eventlogs'])
  })

  test('continue from the stored position, also after a restart', async () => {
    await using service = await standIn()
    await live(service.url, { machine: logging(3) })
    expect(logPositionStore(stateDir()).load()).toEqual({ cursor: '3' })
    const { asked, ...machine } = logging(3)
    await live(service.url, { machine })
    expect(asked).toEqual([{ cursor: '3' }])
  })

  test('cause no request when there are none', async () => {
    await using service = await standIn()
    await live(service.url, { seconds: 3600 })
    expect(service.count('logs')).toBe(0)
  })

  test('that the service refuses for now are retried ever later, and heartbeats continue', async () => {
    await using service = await standIn((request) =>
      request.path.endsWith('/eventlogs') ? refusal(503, 'unavailable') : agreeable(request),
    )
    const { asked, ...machine } = logging()
    const { events } = await live(service.url, { seconds: 4 * 3600, machine })
    expect(service.count('/heartbeat')).toBe(241)
    expect(service.count('/eventlogs')).toBeGreaterThan(6)
    expect(service.count('/eventlogs')).toBeLessThan(12)
    expect(new Set(asked.map(({ cursor }) => cursor))).toEqual(new Set([undefined]))
    expect(events).toContainEqual(expect.objectContaining({ event: 'failed', step: 'eventlogs' }))
  })

  test('over the quota are retried at Retry-After, and the agent reports the reason', async () => {
    const isFull = ({ path }: { path: string }, before: { path: string }[]) =>
      /logs$/.test(path) && before.filter((one) => one.path === path).length < 2
    await using service = await standIn((request, before) => {
      if (isFull(request, before)) return refusal(429, 'log_quota_exceeded', { 'retry-after': '30' })
      // Causes a diagnostic of the agent itself.
      const beats = before.filter(({ path }) => path.endsWith('/heartbeat')).length
      return request.path.endsWith('/heartbeat') && beats < 1
        ? refusal(503, 'unavailable')
        : agreeable(request)
    })
    const { events } = await live(service.url, { seconds: 3000, machine: logging() })
    const bodies = (path: string) =>
      service.received.filter((one) => one.path.endsWith(path)).map(({ body }) => JSON.stringify(body))
    const idsOf = (path: string) =>
      bodies(path).map((body) => [...body.matchAll(/"eventId":"(\d+)"/g)].map(([, id]) => id))
    expect(idsOf('/eventlogs').slice(0, 4)).toEqual([['0'], ['0'], ['0'], ['1']])
    const said = bodies('/logs')
    expect(said.length).toBeGreaterThanOrEqual(3)
    for (const body of said.slice(0, 3)) expect(body).toContain('refused: unavailable')
    for (const step of ['eventlogs', 'diagnostics'])
      expect(events).toContainEqual(
        expect.objectContaining({ event: 'failed', step, code: 'log_quota_exceeded' }),
      )
  })

  test.each([400, 413])('that the service refuses for good (%i) are skipped', async (status) => {
    await using service = await standIn((request) =>
      request.path.endsWith('/eventlogs') ? refusal(status, 'invalid_request') : agreeable(request),
    )
    const { asked, ...machine } = logging()
    const { names } = await live(service.url, { seconds: 1000, machine })
    expect(asked.map(({ cursor }) => cursor)).toEqual([undefined, '1'])
    expect(names).not.toContain('failed')
  })

  test('that cannot be read do not stop the agent', async () => {
    await using service = await standIn()
    const machine = { readHostLogs: () => Promise.reject(new Error('no')) }
    const { stopped } = await live(service.url, { seconds: 600, machine })
    expect(stopped).toBe(true)
    expect(service.count('/heartbeat')).toBe(11)
  })

  test('that are refused with a decommission end the agent', async () => {
    await using service = await standIn((request) =>
      request.path.endsWith('/eventlogs') ? refusal(403, 'device_decommissioned') : agreeable(request),
    )
    expect((await live(service.url, { seconds: 600, machine: logging() })).failure).toMatchObject({
      code: 'device_decommissioned',
    })
  })

  test('are submitted once with --once', async () => {
    await using service = await standIn()
    const { names } = await live(service.url, { pace: { once: true }, machine: logging(2) })
    expect(names).toEqual(['enrolled', 'inventory', 'heartbeat', 'eventlogs'])
  })
})

describe('diagnostics of the agent', () => {
  const failing = (times: number) => (request: { path: string }, before: { path: string }[]) => {
    const beats = before.filter(({ path }) => path.endsWith('/heartbeat')).length
    return request.path.endsWith('/heartbeat') && beats < times
      ? refusal(503, 'unavailable')
      : agreeable(request)
  }

  test('are submitted with the next successful heartbeat, once', async () => {
    await using service = await standIn(failing(3))
    const { events } = await live(service.url, { seconds: 600 })
    const sent = service.received.filter(({ path }) => path.endsWith('/logs'))
    expect(sent).toHaveLength(1)
    expect(sent[0]!.headers['idempotency-key']).toMatch(/^[0-9a-f-]{36}$/)
    expect(sent[0]!.body.logs).toMatchObject(
      [1, 2, 3].map((failures) => ({
        level: 'warn',
        component: 'heartbeat',
        message: 'refused: unavailable',
        fields: { code: 'unavailable', failures },
      })),
    )
    expect(events).toContainEqual(expect.objectContaining({ event: 'diagnostics', sent: 3 }))
  })

  test('are kept on disk and submitted in order, 500 at a time, none about submission', async () => {
    await using service = await standIn((request, before) =>
      request.path.endsWith('/logs') && before.filter(({ path }) => path.endsWith('/logs')).length < 3
        ? refusal(503, 'unavailable')
        : failing(700)(request, before),
    )
    await live(service.url, { seconds: 60 * 720 })
    type Log = { component: string; fields: { failures: number } }
    const sent = service.received
      .filter(({ path }) => path.endsWith('/logs'))
      .map(({ body }) => body.logs as Log[])
    expect(sent.map(({ length }) => length)).toEqual([500, 500, 500, 500, 200])
    const logs = sent.slice(-2).flat()
    expect(new Set(logs.map(({ component }) => component))).toEqual(new Set(['heartbeat']))
    expect(logs.map(({ fields }) => fields.failures)).toEqual(Array.from({ length: 700 }, (_, n) => n + 1))
    const keys = service.received
      .filter(({ path }) => path.endsWith('/logs'))
      .map(({ headers }) => headers['idempotency-key'])
    // What was refused was repeated under the same key.
    expect(new Set(keys).size).toBe(2)
  })
})

test('the service accepts what the agent submits', async () => {
  const service = await startService(() => openMigrated('sqlite'))
  const { tokens, orgs } = await buildWorld(service)
  const client = service.client(tokens.bakery)
  const key = await client.call(api.enrollmentKeys.create, {
    body: { orgId: orgs.bakery.id, name: 'Agents' },
  })
  const setting = { key: async () => key.key, pace: { once: true }, machine: logging(3) }
  const first = await live(service.url, setting)
  expect(first.failure).toBeUndefined()
  const { deviceId: id } = first.events[0] as { deviceId: string }
  const { data } = await client.call(api.eventLogs.list, { params: { id } })
  expect(data.map(({ message }) => message).sort()).toEqual(['message 0', 'message 1', 'message 2'])
})

test('a repeated submission has the same key, whatever was submitted in between', async () => {
  await using service = await standIn((request) =>
    request.path.endsWith('/logs') ? refusal(503, 'unavailable') : agreeable(request),
  )
  const signal = new AbortController().signal
  const client = agentClient({ url: service.url, version: '1.0.0', transport: fetchTransport, signal })
  const params = { id: 'a'.repeat(64) }
  const log = { timestamp: '2026-03-01T12:00:00Z', level: 'info', component: 'a', message: 'b' } as const
  const sayLogs = () =>
    client.call(api.diagnosticLogs.submit, { params, body: { logs: [log] } }).catch(() => {})
  const sayEvents = () => client.call(api.eventLogs.submit, { params, body: { events: [] } })
  await sayLogs()
  await sayEvents()
  await sayLogs()
  const keys = service.received.map(({ headers }) => headers['idempotency-key'])
  expect(keys).toHaveLength(3)
  expect([keys[2] === keys[0], keys[1] === keys[0]]).toEqual([true, false])
})
