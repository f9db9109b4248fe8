import { Registry } from 'prom-client'
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { clientReader, networkOf } from '../../daemon/address.ts'
import { readConfig } from '../../daemon/config.ts'
import { Limiter, refusalCounter } from '../../daemon/limiter.ts'
import { api } from '../../src/api.ts'
import type { Limits } from '../../src/core/limits.ts'
import { type Open, openMigrated } from '../databases.ts'
import { adminEmail, startService, type TestService, testSecrets } from '../harness.ts'
import { metricValues } from '../metric-values.ts'
import { addOrgUser, buildWorld, systemToken } from '../world.ts'
import { machine, send } from './request.ts'

const configOf = (env: Record<string, string>) =>
  readConfig({ ...testSecrets, SVC_DATA_DIR: '/nowhere', ...env })

const login = (service: TestService, email: string, headers = {}) =>
  send(service.url, 'POST', '/api/v1/auth/login', { body: { email, password: 'a wrong password' }, headers })

const enroll = (service: TestService) =>
  send(service.url, 'POST', '/api/v1/agents/enroll', { body: machine('f'.repeat(64), 'pc') })

const sites = (service: TestService, token: string) =>
  send(service.url, 'GET', '/api/v1/orgs/sites', { token })

const limited = (error: string, seconds: number) => ({
  status: 429,
  headers: { 'retry-after': expect.stringMatching(new RegExp(`^(${seconds}|${seconds - 1})$`)) },
  body: { error, code: 'rate_limited', retryAfter: expect.any(Number) },
})

/** Those that the database keeps are tested on both: shared-limits.test.ts. */
const open: Open = async () => {
  const database = await openMigrated('sqlite')
  onTestFinished(database.close)
  return database
}

describe('a rate limit', () => {
  const started = (env: Record<string, string>) => startService(open, { env })

  it('LOGIN_IP: the sign-in above the limit gets 429 with the seconds to wait', async () => {
    const service = await started({ RATE_LIMIT_LOGIN_IP: '3/60' })
    for (const n of [1, 2, 3]) expect((await login(service, `person${n}@example.com`)).status).toBe(401)
    const refused = await login(service, 'person4@example.com')
    expect(refused).toMatchObject(limited('Too many login attempts. Please try again later.', 60))
    expect(String(refused.body.retryAfter)).toBe(refused.headers['retry-after'])
    expect((await enroll(service)).status, 'other limits are their own').toBe(401)
  })

  it('LOGIN_ACCOUNT: counts all spellings of one address together, and no other address', async () => {
    const service = await started({ RATE_LIMIT_LOGIN_ACCOUNT: '3/60' })
    for (const email of ['a@example.com', 'A@Example.com', ' a@example.com']) {
      expect((await login(service, email)).status).toBe(401)
    }
    expect(await login(service, 'a@example.com')).toMatchObject(
      limited('Too many login attempts. Please try again later.', 60),
    )
    expect((await login(service, 'b@example.com')).status).toBe(401)
  })

  it('IP: does not count valid API keys, which have their own limit; an invalid key counts', async () => {
    const service = await started({ RATE_LIMIT_IP: '12/60' })
    const system = service.client(await systemToken(service))
    const partner = await system.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
    const org = await system.call(api.orgs.create, {
      body: { partnerId: partner.id, name: 'Bakery', slug: 'bakery' },
    })
    const { key } = await system.call(api.apiKeys.create, {
      body: { orgId: org.id, name: 'ci', scopes: ['devices:read'] },
    })
    const get = async (path: string, apiKey: string) =>
      (await send(service.url, 'GET', `/api/v1${path}`, { headers: { 'x-api-key': apiKey } })).status
    for (let n = 0; n < 30; n++) expect(await get('/devices', key)).toBe(200)
    // Setup used three. A route without API keys and an unknown key use up the rest.
    for (let n = 0; n < 4; n++) expect(await get('/api-keys', key)).toBe(401)
    for (let n = 0; n < 5; n++) expect(await get('/devices', 'svc_unknown')).toBe(401)
    expect(await get('/devices', 'svc_unknown')).toBe(429)
    expect(await get('/devices', key)).toBe(429)
  })

  it('ENROLL_IP and IP: count per address of the connection', async () => {
    const service = await started({ RATE_LIMIT_ENROLL_IP: '2/30', RATE_LIMIT_IP: '5/60' })
    expect([(await enroll(service)).status, (await enroll(service)).status]).toEqual([401, 401])
    expect(await enroll(service)).toMatchObject(limited('Enrollment rate limit exceeded', 30))
    const health = () => send(service.url, 'GET', '/api/v1/health')
    expect([(await health()).status, (await health()).status]).toEqual([200, 200])
    expect(await health()).toMatchObject(limited('Too many requests', 60))
    expect((await send(service.url, 'GET', '/health/live')).status, 'probes are never limited').toBe(200)
  })

  it('EVENT_LOGS: bounds the entries of a device; a batch above it is refused as a whole', async () => {
    const service = await started({ RATE_LIMIT_EVENT_LOGS: '5/3600' })
    const { orgs, tokens } = await buildWorld(service)
    const put = ({ agentId, agentToken }: { agentId: string; agentToken: string }, count: number) => {
      const one = { timestamp: '2026-03-01T11:00:00Z', level: 'error', category: 'system', source: 'x' }
      const events = Array.from({ length: count }, (_, n) => ({ ...one, message: `${n}` }))
      const path = `/api/v1/agents/${agentId}/eventlogs`
      return send(service.url, 'PUT', path, { token: agentToken, body: { events } })
    }
    expect((await put(orgs.bakery, 2)).body).toEqual({ success: true, count: 2 })
    expect(await put(orgs.bakery, 4)).toMatchObject(limited('Rate limit exceeded', 3600))
    expect((await put(orgs.bakery, 3)).body).toEqual({ success: true, count: 3 })
    expect(await put(orgs.bakery, 1)).toMatchObject(limited('Rate limit exceeded', 3600))
    expect((await put(orgs.garage, 5)).body, 'another device').toEqual({ success: true, count: 5 })
    const { bakery } = orgs
    const kept = `/api/v1/devices/${bakery.deviceId}/eventlogs`
    const list = await send(service.url, 'GET', kept, { token: tokens.bakery })
    expect(list.body).toMatchObject({ pagination: { total: 5 } })
  })

  it('BODY_BYTES_HOURLY: counts the bodies of a user, and of nobody else', async () => {
    const service = await started({ RATE_LIMIT_BODY_BYTES_HOURLY: '100000/3600' })
    const { orgs, tokens } = await buildWorld(service)
    const value = ['x'.repeat(60_000)]
    const conditions = { operator: 'AND', conditions: [{ field: 'hostname', operator: 'in', value }] }
    const preview = (token: string) =>
      send(service.url, 'POST', '/api/v1/filters/preview', { token, body: { conditions } })
    expect((await preview(tokens.bakery)).status).not.toBe(429)
    expect(await preview(tokens.bakery)).toMatchObject(limited('Too many bytes of requests in an hour', 3600))
    expect((await sites(service, tokens.bakery)).status).toBe(200)
    const colleague = await addOrgUser(service, 'colleague', orgs.bakery.id)
    expect((await preview(colleague)).status).not.toBe(429)
  })

  it('BEARER and AGENT: count per user and per agent, and only with valid credentials', async () => {
    const service = await started({ RATE_LIMIT_BEARER: '100/60', RATE_LIMIT_AGENT: '2/60' })
    const { orgs, tokens } = await buildWorld(service)
    const beat = ({ agentId }: { agentId: string }, token: string) =>
      send(service.url, 'POST', `/api/v1/agents/${agentId}/heartbeat`, {
        token,
        body: { status: 'ok', agentVersion: '1' },
      })
    for (const _ of [1, 2, 3]) expect((await beat(orgs.bakery, 'svc_stranger')).status).toBe(401)
    for (const _ of [1, 2]) expect((await beat(orgs.bakery, orgs.bakery.agentToken)).status).toBe(200)
    expect(await beat(orgs.bakery, orgs.bakery.agentToken)).toMatchObject(
      limited('Agent rate limit exceeded', 60),
    )
    expect((await beat(orgs.garage, orgs.garage.agentToken)).status).toBe(200)

    const replies = await Promise.all(Array.from({ length: 101 }, () => sites(service, tokens.bakery)))
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(100)
    expect(replies.find(({ status }) => status !== 200)).toMatchObject(limited('Too many requests', 60))
    expect((await sites(service, tokens.garage)).status).toBe(200)
  })

  it('is not extended by refused attempts', async () => {
    const service = await started({ RATE_LIMIT_ENROLL_IP: '2/1' })
    const start = performance.now()
    const statuses: number[] = []
    let admittedAt = start
    while (performance.now() - start < 900) {
      statuses.push((await enroll(service)).status)
      if (statuses.at(-1) === 401) admittedAt = performance.now()
    }
    expect(statuses.filter((status) => status === 401)).toHaveLength(2)
    expect(statuses.length).toBeGreaterThan(10)
    const { body } = await enroll(service)
    expect(body.retryAfter ?? 0).toBeLessThanOrEqual(1)
    await new Promise((resolve) => setTimeout(resolve, 1100 - (performance.now() - admittedAt)))
    expect((await enroll(service)).status).toBe(401)
  })

  it('is disabled by the value off', async () => {
    const service = await started({ RATE_LIMIT_ENROLL_IP: 'off' })
    const replies = await Promise.all(Array.from({ length: 50 }, () => enroll(service)))
    expect(replies.filter(({ status }) => status !== 401)).toEqual([])
  })

  it('forwarded addresses count, and are recorded, only from a trusted proxy', async () => {
    const headers = { 'x-forwarded-for': '6.6.6.6, 203.0.113.9', 'cf-connecting-ip': '198.51.100.1' }
    const recorded = async (env: Record<string, string>) => {
      const service = await started({ ...env, RATE_LIMIT_LOGIN_IP: '1/60' })
      const statuses = [await login(service, adminEmail, headers), await login(service, adminEmail)]
      const client = service.client(await systemToken(service))
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'user.login.failed' } })
      return [data.at(-1)?.ipAddress, ...statuses.map(({ status }) => status)]
    }
    const on = { TRUST_PROXY_HEADERS: 'true' }
    expect(await recorded({})).toEqual(['127.0.0.1', 401, 429])
    expect(await recorded({ ...on, TRUSTED_PROXY_CIDRS: '10.0.0.0/8' })).toEqual(['127.0.0.1', 401, 429])
    expect(await recorded(on)).toEqual(['203.0.113.9', 401, 401])
    expect(await recorded({ ...on, TRUST_CF_CONNECTING_IP: 'true' })).toEqual(['198.51.100.1', 401, 401])
    expect(await recorded({ TRUST_CF_CONNECTING_IP: 'true' })).toEqual(['127.0.0.1', 401, 429])
  })
})

describe('the client address', () => {
  const trusted = ['127.0.0.0/8', '10.0.0.0/8', 'fd00::/8']
  const read = clientReader({ trusted, cloudflare: false })
  const peer = '127.0.0.1'

  it.each([
    ['nothing forwarded', peer, {}, '127.0.0.1'],
    ['IPv4 written as IPv6', '::ffff:192.0.2.1', {}, '192.0.2.1'],
    ['a peer that is not trusted', '192.0.2.1', { 'x-forwarded-for': '6.6.6.6' }, '192.0.2.1'],
    ['a trusted peer written as IPv6', '::ffff:10.1.1.1', { 'x-forwarded-for': '6.6.6.6' }, '6.6.6.6'],
    [
      'the rightmost that is not our proxy',
      peer,
      { 'x-forwarded-for': '6.6.6.6, 203.0.113.9, 10.0.0.2' },
      '203.0.113.9',
    ],
    ['only our own proxies', peer, { 'x-forwarded-for': '10.0.0.2, 10.0.0.3' }, '127.0.0.1'],
    ['several header lines', peer, { 'x-forwarded-for': ['6.6.6.6', '203.0.113.9'] }, '203.0.113.9'],
    ['a value that is no address', peer, { 'x-forwarded-for': '6.6.6.6, <script>' }, '127.0.0.1'],
    ['an empty header', peer, { 'x-forwarded-for': ' , ' }, '127.0.0.1'],
    ['IPv6', peer, { 'x-forwarded-for': '2001:db8::1, fd00::7' }, '2001:db8::1'],
    ['IPv6 in other spellings, with a zone', peer, { 'x-real-ip': '2001:DB8:0::1%eth0' }, '2001:db8::1'],
    ['an address that only some parsers accept', peer, { 'x-forwarded-for': '0x7f.1' }, '127.0.0.1'],
    ['a number', peer, { 'x-real-ip': '16909060' }, '127.0.0.1'],
    ['x-real-ip alone', peer, { 'x-real-ip': '203.0.113.9' }, '203.0.113.9'],
    [
      'both headers: x-forwarded-for first',
      peer,
      { 'x-real-ip': '6.6.6.6', 'x-forwarded-for': '203.0.113.9' },
      '203.0.113.9',
    ],
    ['cf-connecting-ip, not enabled', peer, { 'cf-connecting-ip': '6.6.6.6' }, '127.0.0.1'],
  ])('%s', (_, from, headers, expected) => {
    expect(read(from, headers).ip).toBe(expected)
  })

  it('cf-connecting-ip takes precedence once it is trusted, and only from a trusted peer', () => {
    const cloudflare = clientReader({ trusted, cloudflare: true })
    const headers = { 'cf-connecting-ip': '203.0.113.9', 'x-forwarded-for': '6.6.6.6' }
    expect(cloudflare(peer, headers).ip).toBe('203.0.113.9')
    expect(cloudflare('192.0.2.1', headers).ip).toBe('192.0.2.1')
    expect(cloudflare(peer, { ...headers, 'cf-connecting-ip': 'nonsense' }).ip).toBe('6.6.6.6')
  })

  it('a request came by TLS only when a trusted proxy says so', () => {
    const headers = { 'x-forwarded-proto': 'https' }
    expect(read(peer, headers).https).toBe(true)
    expect(read(peer, {}).https).toBe(false)
    expect(read('192.0.2.1', headers).https).toBe(false)
    expect(clientReader(undefined)(peer, headers).https).toBe(false)
  })

  it('an IPv6 address counts as its /64 network', () => {
    expect(networkOf('2001:db8:1:2:3::4')).toBe(networkOf('2001:db8:1:2:ffff::1'))
    expect(networkOf('2001:db8:1:2::1')).not.toBe(networkOf('2001:db8:1:3::1'))
    expect(networkOf('192.0.2.1')).toBe('192.0.2.1')
  })

  it('an invalid TRUSTED_PROXY_CIDRS stops the start with an error that names it', () => {
    for (const TRUSTED_PROXY_CIDRS of ['10.0.0.0/99', 'proxy.internal', '10.0.0.0/8,,', '10.0.0.1']) {
      const env = { TRUST_PROXY_HEADERS: 'true', TRUSTED_PROXY_CIDRS }
      expect(() => configOf(env), TRUSTED_PROXY_CIDRS).toThrow(/^TRUSTED_PROXY_CIDRS /)
    }
  })
})

describe('the configuration of limits', () => {
  it('has the documented defaults', () => {
    expect(configOf({}).limits).toMatchObject({
      IP: { count: 600, seconds: 60 },
      BEARER: { count: 300, seconds: 60 },
      AGENT: { count: 120, seconds: 60 },
      EVENT_LOGS: { count: 12_000, seconds: 3600 },
      LOGIN_IP: { count: 10, seconds: 300 },
      LOGIN_ACCOUNT: { count: 5, seconds: 300 },
      MFA: { count: 5, seconds: 300 },
      ENROLL_IP: { count: 10, seconds: 60 },
    })
    expect(configOf({}).connections).toEqual({ whole: 20_000, perAddress: 2000 })
  })

  it.each(['x', '10', '10/', '/60', '0/60', '10/0', '-1/5', '1.5/60', '10/60/1', ' 10/60', 'OFF', '1e3/60'])(
    '%j stops the start with an error that names the variable',
    (value) => {
      expect(() => configOf({ RATE_LIMIT_LOGIN_IP: value })).toThrow(/^RATE_LIMIT_LOGIN_IP must be /)
    },
  )
})

describe('a sliding window', () => {
  afterEach(() => {
    vi.useRealTimers()
  })

  const taking = (count: number) => {
    vi.useFakeTimers({ toFake: ['performance'] })
    const limiter = new Limiter({ AGENT: { count, seconds: 10 } } as Limits)
    const take = (amount?: number) => {
      try {
        limiter.take('AGENT', 'someone', amount)
        return 'taken'
      } catch (error) {
        return (error as { extras: { retryAfter: number } }).extras.retryAfter
      }
    }
    return { limiter, take }
  }

  it('frees each slot when its own event is old enough', async () => {
    const { limiter, take } = taking(2)
    expect(take()).toBe('taken')
    vi.advanceTimersByTime(4000)
    expect([take(), take()]).toEqual(['taken', 6])
    vi.advanceTimersByTime(5999)
    expect(take()).toBe(1)
    vi.advanceTimersByTime(1)
    await limiter.sweep()
    expect([take(), take()]).toEqual(['taken', 4])
    vi.advanceTimersByTime(4000)
    expect([take(), take()]).toEqual(['taken', 6])
    vi.advanceTimersByTime(60_000)
    await limiter.sweep()
    expect([take(), take(), take()]).toEqual(['taken', 'taken', 10])
  })

  it('counts what it refuses by the limit, never by whom', async () => {
    const metrics = new Registry()
    const limits = { BEARER: { count: 1, seconds: 10 }, IP: { count: 1, seconds: 10 } } as Limits
    const limiter = new Limiter(limits, refusalCounter(metrics, limits))
    const refused = (work: () => unknown) => expect(work).toThrow('Too many')
    limiter.take('BEARER', 'someone')
    limiter.take('BEARER', 'another')
    refused(() => limiter.take('BEARER', 'someone'))
    refused(() => limiter.check('BEARER', 'another'))
    expect(limiter.tryTake('IP', '::1')).toBe(true)
    expect(limiter.tryTake('IP', '::1')).toBe(false)
    expect(await metricValues(metrics, 'svc_rate_limit_refusals_total')).toEqual({ BEARER: 2, IP: 1 })
  })

  it('takes several at once when enough slots are free, too many only when empty', async () => {
    const { limiter, take } = taking(5)
    expect([take(3), take(3), take(2), take(1)]).toEqual(['taken', 10, 'taken', 10])
    vi.advanceTimersByTime(4000)
    expect(take(4)).toBe(6)
    vi.advanceTimersByTime(6000)
    expect([take(1), take(5)]).toEqual(['taken', 10])
    vi.advanceTimersByTime(3000)
    expect([take(4), take(1), take(2), take(9)]).toEqual(['taken', 7, 10, 10])
    vi.advanceTimersByTime(10_000)
    await limiter.sweep()
    expect([take(9), take(1)]).toEqual(['taken', 10])
  })

  it('of more than 10,000 is kept in at most a thousand slots, which expire together', () => {
    const { take } = taking(10_001)
    expect(take(10_000)).toBe('taken')
    vi.advanceTimersByTime(9)
    expect([take(1), take(1)]).toEqual(['taken', 10])
    vi.advanceTimersByTime(9991)
    expect(take(10_001)).toBe('taken')
    vi.advanceTimersByTime(5000)
    expect(take(1)).toBe(5)
  })
})
