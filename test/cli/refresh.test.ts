import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Answer, FakeService, problem } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

let home: Home
let service: FakeService
let live: string

/** A service with single-use refresh tokens: a second use of one ends the session. */
const singleUseTokens = (): Record<
  string,
  (seen: { headers: Record<string, unknown>; body: unknown }) => Answer | Promise<Answer>
> => {
  const spent = new Set<string>()
  let n = 1
  return {
    'POST /auth/refresh': async ({ body }) => {
      const { refreshToken } = body as { refreshToken: string }
      if (spent.has(refreshToken)) {
        live = 'none'
        return problem(401, 'invalid_refresh_token', 'Invalid refresh token')
      }
      spent.add(refreshToken)
      n += 1
      live = `access-${n}`
      const tokens = { accessToken: live, refreshToken: `refresh-${n}`, expiresInSeconds: 900 }
      // Long enough for the others to arrive.
      await new Promise((resolve) => setTimeout(resolve, 300))
      return { body: { tokens } }
    },
    'GET /orgs/': ({ headers }) =>
      headers.authorization === `Bearer ${live}`
        ? { body: { data: [] } }
        : problem(401, 'invalid_token', 'Invalid or expired token'),
  }
}

beforeEach(async () => {
  live = 'access-1'
  home = new Home()
  service = await new FakeService(singleUseTokens()).start()
})

afterEach(async () => {
  await service.stop()
  home.remove()
})

describe('an expired access token', () => {
  it('is refreshed once by eight concurrent processes, and all of them succeed', async () => {
    home.signIn(service.url, { expiresAt: Date.now() - 1000 })
    const results = await Promise.all(Array.from({ length: 8 }, () => home.run(['orgs', '--json'])))
    expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual(
      Array(8).fill({ code: 0, stderr: '' }),
    )
    expect(service.calls('POST /auth/refresh')).toHaveLength(1)
    expect(home.json('config/sessions/test.json')).toMatchObject({
      accessToken: 'access-2',
      refreshToken: 'refresh-2',
    })
  })

  it('is also one that the service refuses early, and is refreshed', async () => {
    home.signIn(service.url)
    live = 'another'
    expect((await home.run(['orgs'])).code).toBe(0)
    expect(service.calls('GET /orgs/')).toHaveLength(2)
    expect(service.calls('POST /auth/refresh')[0]?.headers['x-service-client']).toBe('cli')
  })

  it('leaves the session file private after a refresh', async () => {
    home.signIn(service.url, { expiresAt: 0 })
    await home.run(['orgs'])
    expect(home.mode('config/sessions/test.json')).toBe('600')
  })

  it('is refreshed only once: if the service refuses the new one too, the exit code is 4', async () => {
    home.signIn(service.url)
    service.answers['GET /orgs/'] = problem(401, 'invalid_token', 'Invalid or expired token')
    expect((await home.run(['orgs'])).code).toBe(4)
    expect(service.calls('POST /auth/refresh')).toHaveLength(1)
  })
})

it('a refresh token used elsewhere ends the session, with a hint to sign in', async () => {
  home.signIn(service.url, { expiresAt: 0 })
  service.answers['POST /auth/refresh'] = problem(401, 'invalid_refresh_token', 'Invalid refresh token')
  const result = await home.run(['orgs', '--json'])
  expect(result).toMatchObject({ code: 4, stdout: '' })
  expect(failureOf(result)).toMatchObject({ code: 'invalid_refresh_token', hint: 'svc login' })
})

it('a lock of a killed process blocks nobody', async () => {
  home.signIn(service.url, { expiresAt: 0 })
  const { mkdirSync, utimesSync } = await import('node:fs')
  const { join } = await import('node:path')
  const lock = join(home.config, 'locks', 'test.lock')
  mkdirSync(lock, { recursive: true })
  const longAgo = Date.now() / 1000 - 60
  utimesSync(lock, longAgo, longAgo)
  expect((await home.run(['orgs'])).code).toBe(0)
})
