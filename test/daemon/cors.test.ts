import { beforeAll, describe, expect, it } from 'vitest'
import { readOrigins } from '../../daemon/cors.ts'
import { SetupError } from '../../src/core/errors.ts'
import { openMigrated } from '../databases.ts'
import { adminEmail, adminPassword, serviceOn, type TestService } from '../harness.ts'
import { systemToken } from '../world.ts'
import { type Reply, send } from './request.ts'

describe('CORS_ALLOWED_ORIGINS', () => {
  const of = (env: Record<string, string>) => [...readOrigins(env)]

  it('defaults to the origins of the dashboard; off allows none', () => {
    const known = {
      DASHBOARD_URL: 'https://dash.example.com/svc/',
      PUBLIC_APP_URL: 'https://app.example.com:8443',
    }
    expect(of(known)).toEqual(['https://dash.example.com', 'https://app.example.com:8443'])
    expect(of({})).toEqual([])
    expect(of({ ...known, CORS_ALLOWED_ORIGINS: 'off' })).toEqual([])
    const configured = { ...known, CORS_ALLOWED_ORIGINS: 'https://a.example, http://localhost:5173' }
    expect(of(configured)).toEqual(['https://a.example', 'http://localhost:5173'])
    // Normalized as a browser sends them.
    expect(of({ CORS_ALLOWED_ORIGINS: 'https://A.example:443' })).toEqual(['https://a.example'])
  })

  it.each([
    '*',
    'null',
    'a.example',
    'https://*.example',
    'https://a.example/',
    'https://a.example/app',
    'https://a.example?',
    'https://u:p@a.example',
    'javascript:alert(1)',
    'https://a.example,',
  ])('refuses %s at start-up', (text) => {
    const reading = () => readOrigins({ CORS_ALLOWED_ORIGINS: text })
    expect(reading).toThrow(SetupError)
    expect(reading).toThrow(/^CORS_ALLOWED_ORIGINS must be exact origins .*: "/)
  })
})

describe('a front-end on another origin', () => {
  const app = 'https://app.example.com'
  const evil = 'https://app.example.com.evil.example'
  let service: TestService
  let token: string

  beforeAll(async () => {
    const database = await openMigrated('sqlite')
    const env = {
      PUBLIC_URL: 'http://svc.example.com',
      DASHBOARD_URL: `${app}/dashboard`,
      TRUST_PROXY_HEADERS: 'true',
    }
    service = await serviceOn(database, { env })
    token = await systemToken(service)
    return async () => {
      await service.close()
      await database.close()
    }
  })

  const allowing = ({ headers }: Reply<unknown>) =>
    Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')))
  const secure = { 'x-forwarded-proto': 'https' }
  const signIn = (headers: Record<string, string>) =>
    send<{ tokens: object }>(service.url, 'POST', '/api/v1/auth/login', {
      body: { email: adminEmail, password: adminPassword },
      headers,
    })
  const jarOf = (cookies: string[]) => cookies.map((one) => one.split(';')[0]).join('; ')
  const refresh = (headers: Record<string, string>) =>
    send(service.url, 'POST', '/api/v1/auth/refresh', { body: {}, headers })

  it('gets a preflight reply; no other origin does', async () => {
    const asks = { 'access-control-request-method': 'POST' }
    const may = await send(service.url, 'OPTIONS', '/api/v1/orgs/sites', {
      headers: { origin: app, ...asks },
    })
    expect([may.status, may.body, may.headers.vary]).toEqual([204, '', 'origin'])
    expect(allowing(may)).toEqual({
      'access-control-allow-origin': app,
      'access-control-allow-credentials': 'true',
      'access-control-allow-methods': 'GET, POST',
      'access-control-allow-headers': 'authorization, content-type, idempotency-key, x-service-csrf',
      'access-control-max-age': '600',
    })
    for (const origin of [evil, 'null', 'http://app.example.com', `${app}:8443`, `${app}/`]) {
      const not = await send(service.url, 'OPTIONS', '/api/v1/orgs/sites', { headers: { origin, ...asks } })
      expect([origin, not.status, allowing(not), not.headers.vary]).toEqual([origin, 405, {}, 'origin'])
    }
    const nowhere = await send(service.url, 'OPTIONS', '/api/v1/nowhere', {
      headers: { origin: app, ...asks },
    })
    expect(nowhere.status).toBe(404)
  })

  it('reads replies and errors; Vary: Origin is sent to every origin', async () => {
    const ask = (origin: string, who?: string) =>
      send(service.url, 'GET', '/api/v1/orgs/sites', { token: who, headers: { origin } })
    for (const who of [token, 'none', undefined]) {
      const { headers } = await ask(app, who)
      expect(headers).toMatchObject({ 'access-control-allow-origin': app, vary: 'origin' })
      expect(headers['access-control-expose-headers']).toContain('x-request-id')
      const other = await ask(evil, who)
      expect([allowing(other), other.headers.vary]).toEqual([{}, 'origin'])
    }
  })

  it('renews its session by cookie with the CSRF token of the last reply', async () => {
    const begun = await signIn({ origin: app, 'sec-fetch-site': 'same-site', ...secure })
    expect(begun.body.tokens).not.toHaveProperty('refreshToken')
    expect(begun.cookies.every((one) => /; Secure/.test(one) && /; SameSite=Lax/.test(one))).toBe(true)
    const csrf = begun.headers['x-service-csrf']!
    const cookie = jarOf(begun.cookies)
    const from = { cookie, origin: app, 'sec-fetch-site': 'same-site' }
    // A window with an older token is told the current one, and tries again.
    const stale = await refresh({ ...from, 'x-service-csrf': 'f'.repeat(64) })
    expect([stale.status, stale.body.code, stale.headers['x-service-csrf']]).toEqual([403, 'csrf', csrf])
    const missing = await refresh(from)
    expect([missing.status, missing.body.code]).toEqual([403, 'csrf'])
    // Another origin neither renews nor reads, whatever token it knows.
    const other = await refresh({ ...from, origin: evil, 'x-service-csrf': csrf })
    expect([other.status, other.body.code, other.headers['x-service-csrf'], allowing(other)]).toEqual([
      403,
      'csrf',
      undefined,
      {},
    ])
    const renewed = await refresh({ ...from, 'x-service-csrf': csrf })
    expect(renewed.status).toBe(200)
    const next = renewed.headers['x-service-csrf']!
    expect(next).toMatch(/^[0-9a-f]{64}$/)
    expect(jarOf(renewed.cookies)).toContain(`service_csrf_token=${next}`)
    expect(next).not.toBe(csrf)
  })

  it('on another site gets SameSite=None cookies, over TLS only', async () => {
    const afar = { origin: app, 'sec-fetch-site': 'cross-site' }
    const safe = await signIn({ ...afar, ...secure })
    expect(safe.cookies).toHaveLength(2)
    expect(safe.cookies.every((one) => /; Secure; SameSite=None/.test(one))).toBe(true)
    const renewed = await refresh({
      ...afar,
      ...secure,
      cookie: jarOf(safe.cookies),
      'x-service-csrf': safe.headers['x-service-csrf']!,
    })
    expect([renewed.status, renewed.cookies.every((one) => /SameSite=None/.test(one))]).toEqual([200, true])
    const [clear, stranger] = [await signIn(afar), await signIn({ ...afar, ...secure, origin: evil })]
    expect([...clear.cookies, ...stranger.cookies].filter((one) => !/SameSite=Lax/.test(one))).toEqual([])
    expect(stranger.headers['x-service-csrf']).toBeUndefined()
  })
})
