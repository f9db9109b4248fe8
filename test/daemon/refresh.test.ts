import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, startService, type TestService, testClock } from '../harness.ts'
import { admin, audited, login, signIn } from './people.ts'
import { send } from './request.ts'

type Tokens = { accessToken: string; refreshToken: string }
type Renewed = { tokens: Tokens; code?: string; error?: string }

const days = (n: number) => n * 24 * 3600

/** A renewal by a program. */
const refresh = (service: TestService, refreshToken: string) =>
  send<Renewed>(service.url, 'POST', '/api/v1/auth/refresh', {
    body: { refreshToken },
    headers: { 'x-service-client': 'cli' },
  })

const refused = (code: string) => ({ status: 401, body: { code } })

/** The cookies of a browser after signing in. */
async function browser(service: TestService) {
  const { cookies } = await login(service, admin, {})
  const [refreshToken = '', csrf = ''] = cookies.map((cookie) => /=([^;]*)/.exec(cookie)?.[1] ?? '')
  const cookie = `service_refresh_token=${refreshToken}; service_csrf_token=${csrf}`
  const renew = (headers: Record<string, string>) =>
    send<Renewed>(service.url, 'POST', '/api/v1/auth/refresh', { headers })
  return { refreshToken, csrf, cookie, renew }
}

inTurn((open) => {
  const clock = testClock()
  const start = () => startService(open, { clock })

  it('no two access tokens are the same, even within one second', async () => {
    const service = await start()
    const first = await signIn(service)
    const second = await refresh(service, first.refreshToken)
    const idOf = (token: string) => JSON.parse(Buffer.from(token.split('.')[1]!, 'base64url').toString()).jti
    expect(idOf(first.accessToken)).toMatch(/^[0-9a-f-]{36}$/)
    expect(idOf(second.body.tokens.accessToken)).not.toBe(idOf(first.accessToken))
  })

  it('a refresh token in the body returns a new pair, and each works once', async () => {
    const service = await start()
    const first = await signIn(service)
    const second = await refresh(service, first.refreshToken)
    expect(second).toMatchObject({ status: 200, cookies: [], body: { tokens: { expiresInSeconds: 900 } } })
    expect(second.body.tokens.refreshToken).not.toBe(first.refreshToken)
    const { user } = await service.client(second.body.tokens.accessToken).call(api.auth.me)
    expect(user.email).toBe(adminEmail)
    expect((await refresh(service, second.body.tokens.refreshToken)).status).toBe(200)
  })

  it('a spent token is a race for 15 s, then a theft, which ends the family and is audited', async () => {
    const service = await start()
    const other = await signIn(service)
    const { refreshToken: spent } = await signIn(service)
    const { body } = await refresh(service, spent)
    clock.forward(15)
    expect(await refresh(service, spent)).toMatchObject(refused('refresh_raced'))
    expect(await audited(service, 'auth.refresh.reuse_detected')).toEqual([])
    clock.forward(1)
    expect(await refresh(service, spent)).toMatchObject(refused('invalid_refresh_token'))
    expect(await refresh(service, body.tokens.refreshToken)).toMatchObject(refused('invalid_refresh_token'))
    expect(await audited(service, 'auth.refresh.reuse_detected')).toMatchObject([
      { result: 'failure', user: { email: adminEmail }, details: { reason: 'refresh_token_reused' } },
    ])
    expect((await refresh(service, other.refreshToken)).status, 'another family lives on').toBe(200)
  })

  it('a token spent two renewals ago is a theft, even within 15 s', async () => {
    const service = await start()
    const { refreshToken: oldest } = await signIn(service)
    const second = await refresh(service, oldest)
    const third = await refresh(service, second.body.tokens.refreshToken)
    expect(await refresh(service, oldest)).toMatchObject(refused('invalid_refresh_token'))
    expect(await refresh(service, third.body.tokens.refreshToken)).toMatchObject(
      refused('invalid_refresh_token'),
    )
  })

  it('of parallel renewals with one token one succeeds and the others get refresh_raced', async () => {
    const service = await start()
    const { refreshToken } = await signIn(service)
    const replies = await Promise.all(Array.from({ length: 10 }, () => refresh(service, refreshToken)))
    const won = replies.filter(({ status }) => status === 200)
    expect(won).toHaveLength(1)
    expect(replies.filter(({ body }) => body.code === 'refresh_raced')).toHaveLength(9)
    expect((await refresh(service, won[0]!.body.tokens.refreshToken)).status).toBe(200)
  })

  it('a refresh token lasts 7 days', async () => {
    const service = await start()
    const [a, b] = [await signIn(service), await signIn(service)]
    clock.forward(days(7) - 1)
    expect((await refresh(service, a.refreshToken)).status).toBe(200)
    clock.forward(1)
    expect(await refresh(service, b.refreshToken)).toMatchObject(refused('invalid_refresh_token'))
  })

  it('a token family lasts 30 days, however often it is renewed', async () => {
    const service = await start()
    let { refreshToken } = await signIn(service)
    const renew = async () => {
      const { status, body } = await refresh(service, refreshToken)
      if (status === 200) refreshToken = body.tokens.refreshToken
      return status
    }
    for (const _ of [1, 2, 3, 4]) {
      clock.forward(days(6))
      expect(await renew()).toBe(200)
    }
    clock.forward(days(6) - 1)
    expect(await renew()).toBe(200)
    clock.forward(1)
    expect(await renew()).toBe(401)
  })

  it('an invalid refresh token is refused, and ends no session', async () => {
    const service = await start()
    const { accessToken, refreshToken } = await signIn(service)
    const tokens = ['x', '.', 'no.such.token', accessToken, refreshToken.split('.')[1]!]
    for (const token of tokens) {
      expect(await refresh(service, token)).toMatchObject(refused('invalid_refresh_token'))
    }
    const nothing = await send(service.url, 'POST', '/api/v1/auth/refresh')
    expect(nothing).toMatchObject(refused('invalid_refresh_token'))
    expect((await refresh(service, refreshToken)).status).toBe(200)
  })

  it('renewal by cookie requires the CSRF header and our own origin', async () => {
    const service = await start()
    const { csrf, cookie, refreshToken, renew } = await browser(service)
    const { host } = new URL(service.url)
    const right = { cookie, 'x-service-csrf': csrf }
    const bad: [Record<string, string>, string][] = [
      [{ cookie }, 'Missing CSRF header'],
      [{ cookie: `service_refresh_token=${refreshToken}`, 'x-service-csrf': csrf }, 'Missing CSRF cookie'],
      [{ cookie, 'x-service-csrf': 'f'.repeat(64) }, 'Invalid CSRF token'],
      [{ cookie, 'x-service-csrf': csrf.slice(1) }, 'Invalid CSRF token'],
      [{ ...right, origin: 'https://evil.example' }, 'Invalid request origin'],
      [{ ...right, origin: `http://${host}.evil.example` }, 'Invalid request origin'],
      [{ ...right, origin: 'null' }, 'Invalid request origin'],
      [{ ...right, 'sec-fetch-site': 'cross-site' }, 'Cross-site request blocked'],
    ]
    for (const [headers, error] of bad) {
      expect(await renew(headers), error).toMatchObject({ status: 403, body: { code: 'csrf', error } })
    }
    const renewed = await renew({ ...right, origin: service.url, 'sec-fetch-site': 'same-origin' })
    expect(renewed.status, 'refused attempts spent nothing').toBe(200)
  })

  it('renewal by cookie sets new cookies and keeps the refresh token out of the body', async () => {
    const service = await start()
    const { csrf, cookie, refreshToken, renew } = await browser(service)
    const renewed = await renew({ cookie, 'x-service-csrf': csrf })
    expect(Object.keys(renewed.body.tokens).sort()).toEqual(['accessToken', 'expiresInSeconds'])
    expect(renewed.cookies).toEqual([
      expect.stringMatching(/^service_refresh_token=.*Path=\/api\/v1\/auth; HttpOnly; SameSite=Lax$/),
      expect.stringMatching(/^service_csrf_token=[0-9a-f]{64}; /),
    ])
    const [next = '', nextCsrf = ''] = renewed.cookies.map((one) => one.split(';')[0] ?? '')
    expect(next).not.toContain(refreshToken)
    expect(nextCsrf).not.toContain(csrf)
    const headers = { cookie: `${next}; ${nextCsrf}`, 'x-service-csrf': nextCsrf.split('=')[1]! }
    expect((await renew(headers)).status).toBe(200)
  })

  it('a token in the body needs no CSRF header, even beside a cookie', async () => {
    const service = await start()
    const { cookie } = await browser(service)
    const { refreshToken } = await signIn(service)
    const sent = { body: { refreshToken }, headers: { cookie, 'x-service-client': 'cli' } }
    expect((await send(service.url, 'POST', '/api/v1/auth/refresh', sent)).status).toBe(200)
  })
})
