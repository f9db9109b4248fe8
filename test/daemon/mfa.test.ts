import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, serviceOn, startService, type TestService, testClock, testSecrets } from '../harness.ts'
import { audited, codeAt, enrolFactor, login, post, signIn } from './people.ts'

const wrongCode = { status: 401, body: { code: 'invalid_mfa_code', error: 'Invalid MFA code' } }
const deadSession = { status: 401, body: { code: 'invalid_mfa_session' } }

/** The second step of a sign-in. */
const verify = (service: TestService, tempToken: string | undefined, code: string) =>
  post(service, '/auth/mfa/verify', undefined, { tempToken, code })

const challenge = async (service: TestService, who?: { email: string; password: string }) =>
  (await login(service, who)).body.tempToken

inTurn((open) => {
  it('a rotated encryption key still opens what the previous one sealed', async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const { accessToken } = await signIn(service)
    const { secret } = await enrolFactor(service.client(accessToken), clock)
    clock.forward(60)
    const { APP_ENCRYPTION_KEY: before } = testSecrets
    const env = { APP_ENCRYPTION_KEY: 'a new secret, of more than 32 characters' }
    const changed = await serviceOn(service, { clock, env: { ...env, APP_ENCRYPTION_KEY_PREVIOUS: before } })
    const { body } = await login(changed)
    const code = { tempToken: body.tempToken, code: codeAt(secret, clock) }
    expect((await post(changed, '/auth/mfa/verify', undefined, code)).status).toBe(200)
  })

  const clock = testClock()
  const start = (env = {}) => startService(open, { clock, env })

  /** Enrolls the administrator in MFA. */
  async function enrolled(env = {}) {
    const service = await start(env)
    const { accessToken } = await signIn(service)
    const factor = await enrolFactor(service.client(accessToken), clock)
    clock.forward(60)
    return { service, first: accessToken, ...factor }
  }

  it('setup returns a secret for an authenticator app and ten recovery codes', async () => {
    const service = await start()
    const { accessToken } = await signIn(service)
    const setup = await service.client(accessToken).call(api.auth.setupMfa)
    expect(setup.secret).toMatch(/^[A-Z2-7]{32}$/)
    const url = new URL(setup.otpAuthUrl)
    expect([url.protocol, url.host, url.searchParams.get('secret')]).toEqual([
      'otpauth:',
      'totp',
      setup.secret,
    ])
    expect(decodeURIComponent(url.pathname)).toBe(`/svc:${adminEmail}`)
    expect(setup.qrCodeDataUrl).toMatch(/^data:image\/png;base64,/)
    expect(new Set(setup.recoveryCodes).size).toBe(10)
    for (const code of setup.recoveryCodes) expect(code).toMatch(/^[A-Z0-9]{4}-[A-Z0-9]{4}$/)
    expect((await login(service)).body.mfaRequired, 'nothing is on before it is confirmed').toBe(false)
  })

  it('the first correct code enables MFA, returns an MFA session and ends all others', async () => {
    const service = await start()
    const [here, elsewhere] = [await signIn(service), await signIn(service)]
    const { secret } = await service.client(here.accessToken).call(api.auth.setupMfa)
    const enable = (code: string) => post(service, '/auth/mfa/enable', here.accessToken, { code })
    expect(await enable('000000')).toMatchObject(wrongCode)
    expect(await enable(codeAt(secret, clock, 60))).toMatchObject(wrongCode)
    const { status, body } = await enable(codeAt(secret, clock))
    expect(status).toBe(200)
    const shown = await service.client(body.tokens?.accessToken).call(api.auth.me)
    expect(shown).toMatchObject({ mfaVerified: true, user: { mfaEnabled: true, mfaMethod: 'totp' } })
    for (const { accessToken, refreshToken } of [here, elsewhere]) {
      await expect(service.client(accessToken).call(api.auth.me)).rejects.toMatchObject({
        code: 'invalid_token',
      })
      expect((await post(service, '/auth/refresh', undefined, { refreshToken })).status).toBe(401)
    }
    const again = await post(service, '/auth/mfa/setup', body.tokens?.accessToken)
    expect(again).toMatchObject({ status: 409, body: { error: 'MFA is already enabled' } })
    const results = (await audited(service, 'auth.mfa.enable')).map(({ result }) => result)
    expect(results).toEqual(['success', 'failure', 'failure'])
  })

  it('a setup expires after 10 minutes, and a later setup replaces it', async () => {
    const service = await start()
    const setUp = async () => service.client((await signIn(service)).accessToken).call(api.auth.setupMfa)
    const enable = async (secret: string) =>
      post(service, '/auth/mfa/enable', (await signIn(service)).accessToken, { code: codeAt(secret, clock) })
    const nothing = { status: 400, body: { error: 'No pending MFA setup' } }
    expect(await enable('A'.repeat(32))).toMatchObject(nothing)
    const first = await setUp()
    clock.forward(600)
    expect(await enable(first.secret)).toMatchObject(nothing)
    const second = await setUp()
    expect(await enable(first.secret)).toMatchObject(wrongCode)
    clock.forward(599)
    expect((await enable(second.secret)).status).toBe(200)
  })

  it('with MFA, the password alone returns no session, only a token for the second step', async () => {
    const { service, secret } = await enrolled()
    const { status, body, cookies } = await login(service, undefined, {})
    expect({ status, cookies }).toEqual({ status: 200, cookies: [] })
    expect(body).toEqual({
      user: null,
      tokens: null,
      mfaRequired: true,
      mfaMethod: 'totp',
      tempToken: body.tempToken,
    })
    await expect(service.client(body.tempToken).call(api.auth.me)).rejects.toMatchObject({ status: 401 })

    expect(await verify(service, body.tempToken, '000000')).toMatchObject(wrongCode)
    const done = await verify(service, body.tempToken, codeAt(secret, clock))
    expect(done).toMatchObject({ status: 200, body: { mfaRequired: false, user: { email: adminEmail } } })
    const { mfaVerified } = await service.client(done.body.tokens?.accessToken).call(api.auth.me)
    expect(mfaVerified).toBe(true)
    expect(await verify(service, body.tempToken, codeAt(secret, clock, 30)), 'used up').toMatchObject(
      deadSession,
    )
    const reasons = (await audited(service, 'user.login.failed')).map(({ details }) => details.reason)
    expect(reasons).toEqual(['mfa_invalid_code'])
  })

  it('a code is accepted one step early or late, and once', async () => {
    const { service, secret } = await enrolled()
    const tryAt = async (offset: number) =>
      (await verify(service, await challenge(service), codeAt(secret, clock, offset))).status
    expect([await tryAt(-60), await tryAt(60)], 'two steps off').toEqual([401, 401])
    expect(await tryAt(-30)).toBe(200)
    expect(await tryAt(-30), 'replayed').toBe(401)
    expect([await tryAt(30), await tryAt(30)]).toEqual([200, 401])
    expect(await tryAt(0), 'older than one that was used').toBe(401)
    clock.forward(60)
    expect(await tryAt(0)).toBe(200)
  })

  it('the code that enabled MFA does not sign in', async () => {
    const service = await start()
    const { accessToken } = await signIn(service)
    const { secret } = await enrolFactor(service.client(accessToken), clock)
    expect(await verify(service, await challenge(service), codeAt(secret, clock))).toMatchObject(wrongCode)
  })

  it('of parallel sign-ins with one code exactly one succeeds', async () => {
    const { service, secret } = await enrolled()
    const temporary = [await challenge(service), await challenge(service), await challenge(service)]
    const code = codeAt(secret, clock)
    const statuses = (await Promise.all(temporary.map((one) => verify(service, one, code)))).map(
      (it) => it.status,
    )
    expect(statuses.sort()).toEqual([200, 401, 401])
  })

  it('a recovery code signs in once, in upper or lower case', async () => {
    const { service, recoveryCodes } = await enrolled()
    const use = async (code: string) => verify(service, await challenge(service), code)
    const [one, two] = recoveryCodes as [string, string]
    const { status, body } = await use(one.toLowerCase())
    expect(status).toBe(200)
    expect((await service.client(body.tokens?.accessToken).call(api.auth.me)).mfaVerified).toBe(true)
    expect(await use(one)).toMatchObject(wrongCode)
    expect((await use(two)).status).toBe(200)
    expect(await use('AAAA-AAAA')).toMatchObject(wrongCode)
    const methods = (await audited(service, 'user.login')).filter(({ details }) => details.mfa === true)
    expect(methods.map(({ details }) => details.method)).toEqual(['recovery_code', 'recovery_code'])
  })

  it('the token for the second step lasts 5 minutes', async () => {
    const { service, secret } = await enrolled()
    const [a, b] = [await challenge(service), await challenge(service)]
    clock.forward(299)
    expect((await verify(service, a, codeAt(secret, clock))).status).toBe(200)
    clock.forward(1)
    expect(await verify(service, b, codeAt(secret, clock, 30))).toMatchObject(deadSession)
  })

  it('five codes may be tried in five minutes', async () => {
    const { service, secret } = await enrolled({ RATE_LIMIT_MFA: '5/300' })
    const tempToken = await challenge(service)
    for (const _ of [1, 2, 3, 4]) expect(await verify(service, tempToken, '000000')).toMatchObject(wrongCode)
    expect(await verify(service, await challenge(service), codeAt(secret, clock))).toMatchObject({
      status: 429,
      headers: { 'retry-after': expect.stringMatching(/^\d+$/) },
      body: { code: 'rate_limited', error: 'Too many MFA attempts', retryAfter: expect.any(Number) },
    })
  })

  it('a renewed session is still verified by MFA', async () => {
    const { service, tokens } = await enrolled()
    const renewed = await service
      .client()
      .call(api.auth.refresh, { body: { refreshToken: tokens.refreshToken! } })
    expect((await service.client(renewed.tokens.accessToken).call(api.auth.me)).mfaVerified).toBe(true)
  })
})
