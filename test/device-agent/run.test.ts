import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { identityStore } from '../../src/device-agent/state.ts'
import { livingAgents } from './live.ts'
import { type Answer, agentId, agreeable, authToken, beat, deviceId, refusal, standIn } from './stand-in.ts'

const { live, stateDir } = livingAgents()

describe('the first run', () => {
  test('enrolls with a description of the machine, then sends heartbeat and inventory', async () => {
    await using service = await standIn()
    const { names } = await live(service.url)
    expect(names).toEqual(['enrolled', 'heartbeat', 'inventory'])
    const [enrollment, heartbeat, inventory] = service.received
    expect(enrollment).toMatchObject({ method: 'POST', path: '/api/v1/agents/enroll' })
    expect(enrollment!.headers.authorization).toBeUndefined()
    expect(enrollment!.body).toMatchObject({
      enrollmentKey: 'the-key',
      agentVersion: '1.2.3',
      hardwareInfo: {},
    })
    expect(heartbeat).toMatchObject({ method: 'POST', path: `/api/v1/agents/${agentId}/heartbeat` })
    expect(heartbeat!.headers.authorization).toBe(`Bearer ${authToken}`)
    expect(heartbeat!.body).toMatchObject({ status: 'ok', metrics: {}, uptime: expect.any(Number) })
    expect(inventory).toMatchObject({ method: 'PUT', path: `/api/v1/agents/${agentId}/inventory` })
    expect(inventory!.headers.authorization).toBe(`Bearer ${authToken}`)
    expect(Object.keys(inventory!.body)).toContain('network')
  })

  test('never reveals the key or the token in events, nor the key in the state', async () => {
    await using service = await standIn()
    const { events } = await live(service.url)
    expect(JSON.stringify(events)).not.toContain('the-key')
    expect(JSON.stringify(events)).not.toContain(authToken)
    expect(readFileSync(join(stateDir(), 'identity.json'), 'utf8')).not.toContain('the-key')
  })

  test.each([
    refusal(401, 'enrollment_key_not_found'),
    refusal(401, 'enrollment_key_expired'),
    refusal(401, 'enrollment_key_exhausted'),
    refusal(403, 'device_limit_reached'),
    refusal(403, 'tenant_inactive'),
    refusal(400, 'invalid_request'),
  ])('ends at once when the key is refused: $body.code', async (answer) => {
    await using service = await standIn(() => answer)
    const { failure, pauses } = await live(service.url, { seconds: 1000 })
    expect(failure).toMatchObject({ code: (answer as { body: { code: string } }).body.code })
    expect(pauses).toEqual([])
    expect(service.received).toHaveLength(1)
    expect(identityStore(stateDir()).load()).toBeUndefined()
  })

  test('repeats an unanswered enrollment unchanged, under one idempotency key', async () => {
    let asked = 0
    const key = async () => `key-${++asked}`
    await using service = await standIn((request, before) => (before.length < 3 ? 'cut' : agreeable(request)))
    const { names } = await live(service.url, { seconds: 10, key })
    expect(names.slice(0, 4)).toEqual(['failed', 'failed', 'failed', 'enrolled'])
    expect(service.received.slice(0, 4).map(({ body }) => body.enrollmentKey)).toEqual(Array(4).fill('key-1'))
    expect(new Set(service.received.slice(0, 4).map(({ body }) => JSON.stringify(body))).size).toBe(1)
    expect(new Set(service.received.slice(0, 4).map(({ headers }) => headers['idempotency-key'])).size).toBe(
      1,
    )
    expect(service.received[0]?.headers['idempotency-key']).toMatch(/^[0-9a-f-]{36}$/)
  })
})

test('a second run uses the identity of the first, without a key or an enrollment', async () => {
  await using service = await standIn()
  await live(service.url)
  const key = () => Promise.reject(new Error('asked for a key'))
  const { names, events } = await live(service.url, { key })
  expect(names).toEqual(['resumed', 'heartbeat', 'inventory'])
  expect(events[0]).toMatchObject({ deviceId, agentId })
  expect(service.count('/enroll')).toBe(1)
})

describe('heartbeats', () => {
  test('are sent at the interval of the service, within a tenth', async () => {
    await using service = await standIn()
    for (const [random, seconds] of [
      [0, 54],
      [0.5, 60],
      [0.999, 65.988],
    ] as const) {
      const { pauses } = await live(service.url, { seconds: 600, random })
      expect(pauses.length).toBeGreaterThan(8)
      for (const pause of pauses) expect(pause).toBeCloseTo(seconds)
    }
  })

  test('are sent at the interval of the command line, if given', async () => {
    await using service = await standIn()
    const { pauses } = await live(service.url, { seconds: 20, pace: { intervalSeconds: 5 } })
    expect(pauses).toEqual([5, 5, 5, 5, 5])
  })

  test('follow a new interval of the service, also after a restart', async () => {
    const slower = {
      ...(beat as object),
      body: { ...(beat as { body: object }).body, configUpdate: { heartbeatIntervalSeconds: 300 } },
    }
    await using service = await standIn((request) =>
      request.path.endsWith('/heartbeat') ? (slower as Answer) : agreeable(request),
    )
    expect((await live(service.url)).pauses).toEqual([300])
    await using plain = await standIn()
    expect((await live(plain.url)).pauses).toEqual([300])
  })

  test.each([0, -5, 'soon', null, 1e12])(
    'ignore an invalid interval: %j',
    async (heartbeatIntervalSeconds) => {
      const odd = {
        status: 200,
        body: { ...(beat as { body: object }).body, configUpdate: { heartbeatIntervalSeconds } },
      }
      await using service = await standIn((request) =>
        request.path.endsWith('/heartbeat') ? odd : agreeable(request),
      )
      expect((await live(service.url)).pauses).toEqual([60])
    },
  )

  test('survive ten failures in a row with growing pauses and then continue as before', async () => {
    const failures: Answer[] = [
      'cut',
      refusal(500, 'internal'),
      refusal(502, 'bad_gateway'),
      refusal(503, 'unavailable'),
    ]
    await using service = await standIn((request, before) => {
      const beats = before.filter(({ path }) => path.endsWith('/heartbeat')).length
      return request.path.endsWith('/heartbeat') && beats < 10 ? failures[beats % 4]! : agreeable(request)
    })
    const { pauses, names, events } = await live(service.url, { seconds: 400, random: 0 })
    expect(pauses.slice(0, 12)).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 54, 54])
    expect(names.slice(0, 13)).toEqual(['enrolled', ...Array(10).fill('failed'), 'heartbeat', 'inventory'])
    expect(events[1]).toMatchObject({
      step: 'heartbeat',
      code: 'unreachable',
      failures: 1,
      retryInSeconds: 1,
    })
    expect(events[2]).toMatchObject({ code: 'internal', failures: 2, retryInSeconds: 2 })
  })

  test('wait for as long as the service requests', async () => {
    await using service = await standIn((request, before) =>
      request.path.endsWith('/heartbeat') && before.length === 1
        ? refusal(429, 'rate_limited', { 'retry-after': '37' })
        : agreeable(request),
    )
    const { pauses, events } = await live(service.url, { seconds: 60, random: 0 })
    expect(pauses[0]).toBe(37)
    expect(events[1]).toMatchObject({ event: 'failed', code: 'rate_limited', retryInSeconds: 37 })
  })

  test.each(['tenant_inactive', 'forbidden'])('continue after a %s, which may be temporary', async (code) => {
    await using service = await standIn((request, before) =>
      request.path.endsWith('/heartbeat') && before.length < 5 ? refusal(403, code) : agreeable(request),
    )
    const { names } = await live(service.url, { seconds: 60 })
    expect(names).toContain('heartbeat')
  })

  test.each([
    [401, 'invalid_agent_credentials', 'no longer accepts this machine'],
    [403, 'device_decommissioned', 'restore the device'],
  ])('end on %i %s, with the remedy', async (status, code, advice) => {
    await using service = await standIn((request, before) =>
      request.path.endsWith('/heartbeat') && before.length > 4 ? refusal(status, code) : agreeable(request),
    )
    const { failure, stopped } = await live(service.url, { seconds: 100_000 })
    expect(stopped).toBe(false)
    expect(failure).toMatchObject({
      status,
      code,
      requestId: 'r-1',
      message: expect.stringContaining(advice),
    })
    expect(failure.message).toContain(join(stateDir(), 'identity.json'))
    expect(service.received.length).toBe(6)
  })
})

describe('the inventory', () => {
  test('is sent every six hours and not in between', async () => {
    await using service = await standIn()
    await live(service.url, {
      seconds: 13 * 3600,
      pace: { intervalSeconds: 600 },
    })
    expect(service.count('/inventory')).toBe(3)
  })

  test('is sent with the next heartbeat after a change, but at most once in five minutes', async () => {
    await using service = await standIn()
    let version = 0
    await live(service.url, {
      seconds: 1790,
      pace: { intervalSeconds: 60 },
      machine: { inventorySignature: () => `change ${version++}` },
    })
    expect(service.count('/heartbeat')).toBe(30)
    expect(service.count('/inventory')).toBe(6)
  })

  test('that the service refuses is retried with growing pauses, and heartbeats continue', async () => {
    await using service = await standIn((request) =>
      request.path.endsWith('/inventory') ? refusal(500, 'internal') : agreeable(request),
    )
    const { events } = await live(service.url, {
      seconds: 4 * 3600,
      pace: { intervalSeconds: 60 },
    })
    expect(service.count('/heartbeat')).toBe(241)
    expect(service.count('/inventory')).toBeLessThan(12)
    expect(service.count('/inventory')).toBeGreaterThan(7)
    expect(events).toContainEqual(
      expect.objectContaining({ event: 'failed', step: 'inventory', retryInSeconds: 3600 }),
    )
  })

  test('that is refused with a credential error ends the agent', async () => {
    await using service = await standIn((request) =>
      request.path.endsWith('/inventory') ? refusal(401, 'invalid_agent_credentials') : agreeable(request),
    )
    expect((await live(service.url, { seconds: 1000 })).failure).toMatchObject({
      code: 'invalid_agent_credentials',
    })
  })
})

describe('with --once the agent', () => {
  test('enrolls, sends one inventory and one heartbeat, and ends', async () => {
    await using service = await standIn()
    const { names, pauses, failure } = await live(service.url, { pace: { once: true } })
    expect({ names, pauses, failure }).toEqual({
      names: ['enrolled', 'inventory', 'heartbeat'],
      pauses: [],
      failure: undefined,
    })
  })

  test('fails instead of waiting', async () => {
    await using service = await standIn((request) =>
      request.path.endsWith('/heartbeat') ? 'cut' : agreeable(request),
    )
    const { failure, pauses } = await live(service.url, { pace: { once: true } })
    expect(failure).toMatchObject({ name: 'NetworkError' })
    expect(pauses).toEqual([])
  })
})
