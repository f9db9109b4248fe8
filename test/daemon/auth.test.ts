import { SignJWT } from 'jose'
import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, startService, type TestService, testClock, testSecrets } from '../harness.ts'
import { addPerson, addTenant, admin, audited, login, password, sameFor, signIn } from './people.ts'
import { send } from './request.ts'

const me = (service: TestService, token?: string) => send(service.url, 'GET', '/api/v1/auth/me', { token })

inTurn((open) => {
  const clock = testClock()
  const start = () => startService(open, { clock })

  it('a program that signs in gets both tokens in the body and no cookies', async () => {
    const service = await start()
    const { status, cookies, body } = await login(service)
    expect({ status, cookies }).toEqual({ status: 200, cookies: [] })
    expect(body).toMatchObject({
      user: { email: adminEmail, status: 'active', mfaEnabled: false },
      tokens: { accessToken: expect.any(String), refreshToken: expect.any(String), expiresInSeconds: 900 },
      mfaRequired: false,
      mfaEnrollmentRequired: false,
    })
    const shown = await service.client(body.tokens!.accessToken).call(api.auth.me)
    expect(shown).toMatchObject({
      scope: 'system',
      partnerId: null,
      orgId: null,
      permissions: ['*:*'],
      mfaVerified: false,
    })
    expect(shown.user.lastLoginAt).toBe(clock())
    expect(await audited(service, 'user.login')).toMatchObject([
      { result: 'success', user: { email: adminEmail }, details: { method: 'password', mfa: false } },
    ])
  })

  it('a browser gets the refresh token in an HttpOnly cookie, and never in the body', async () => {
    const { body, cookies } = await login(await start(), admin, {})
    expect(Object.keys(body.tokens ?? {}).sort()).toEqual(['accessToken', 'expiresInSeconds'])
    expect(cookies).toEqual([
      expect.stringMatching(
        /^service_refresh_token=[^;]{60,}; Max-Age=604800; Path=\/api\/v1\/auth; HttpOnly; SameSite=Lax$/,
      ),
      expect.stringMatching(/^service_csrf_token=[0-9a-f]{64}; Max-Age=604800; Path=\/; SameSite=Lax$/),
    ])
  })

  it('an access token works for 15 minutes', async () => {
    const service = await start()
    const { accessToken } = await signIn(service)
    clock.forward(899)
    expect((await me(service, accessToken)).status).toBe(200)
    clock.forward(1)
    expect(await me(service, accessToken)).toMatchObject({ status: 401, body: { code: 'invalid_token' } })
  })

  it('signing out ends every session at once and clears the cookies', async () => {
    const service = await start()
    const [here, there] = [await signIn(service), await signIn(service)]
    expect((await me(service, there.accessToken)).status).toBe(200)
    const out = await send(service.url, 'POST', '/api/v1/auth/logout', { token: here.accessToken })
    expect({ status: out.status, body: out.body }).toEqual({ status: 200, body: { success: true } })
    expect(out.cookies).toEqual([
      expect.stringMatching(/^service_refresh_token=; .*Path=\/api\/v1\/auth; Expires=Thu, 01 Jan 1970/),
      expect.stringMatching(/^service_csrf_token=; .*Path=\/; Expires=Thu, 01 Jan 1970/),
    ])
    for (const { accessToken, refreshToken } of [here, there]) {
      expect(await me(service, accessToken)).toMatchObject({ status: 401, body: { code: 'invalid_token' } })
      const again = await send(service.url, 'POST', '/api/v1/auth/refresh', { body: { refreshToken } })
      expect(again).toMatchObject({ status: 401, body: { code: 'invalid_refresh_token' } })
    }
    expect((await login(service)).status, 'signing in again').toBe(200)
  })

  it('every refused sign-in gets the same 401; only the audit log holds the reason', async () => {
    const service = await start()
    const { orgId } = await addTenant(service)
    const disabled = await addPerson(service, 'disabled', { orgId }, 'Org Admin')
    const nowhere = await addPerson(service, 'nowhere', { orgId }, 'Org Admin')
    await service.storage.write(async (tx) => {
      await tx.updateTable('users').set({ status: 'disabled' }).where('email', '=', disabled).execute()
      const { id } = await tx
        .selectFrom('users')
        .select('id')
        .where('email', '=', nowhere)
        .executeTakeFirstOrThrow()
      await tx.deleteFrom('organization_memberships').where('user_id', '=', id).execute()
    })
    const attempts = [
      await login(service, { email: 'nobody@example.com', password }),
      await login(service, { email: adminEmail, password: 'a wrong password' }),
      await login(service, { email: disabled, password }),
      await login(service, { email: nowhere, password }),
    ]
    for (const attempt of attempts) expect(sameFor(attempt)).toEqual(sameFor(attempts[0]!))
    expect(attempts[0]).toMatchObject({
      status: 401,
      body: { error: 'Invalid email or password', code: 'invalid_credentials' },
    })
    const entries = (await audited(service, 'user.login.failed')).toReversed()
    expect(entries.map(({ result, details }) => [result, details.reason])).toEqual([
      ['failure', 'unknown_account'],
      ['failure', 'invalid_password'],
      ['failure', 'account_inactive'],
      ['failure', 'tenant_inactive'],
    ])
    expect(entries.map(({ user }) => user.email)).toEqual([
      'nobody@example.com',
      adminEmail,
      disabled,
      nowhere,
    ])
  })

  it('a sign-in with an unknown address takes as long as one with a wrong password', async () => {
    const service = await start()
    const time = async (email: string) => {
      const began = performance.now()
      await login(service, { email, password: 'a wrong password' })
      return performance.now() - began
    }
    await time('warm-up@example.com')
    const [unknown, known]: [number[], number[]] = [[], []]
    for (let n = 0; n < 4; n++) {
      unknown.push(await time('nobody@example.com'))
      known.push(await time(adminEmail))
    }
    // The fastest of each, measured alternately: other load on the machine only adds time.
    expect(Math.min(...unknown) / Math.min(...known)).toBeGreaterThan(0.4)
  })

  it('a disabled user, or one of a suspended tenant, is refused at the next request', async () => {
    const service = await start()
    const { orgId } = await addTenant(service)
    const email = await addPerson(service, 'baker', { orgId }, 'Org Admin')
    const { accessToken, refreshToken } = await signIn(service, { email, password })
    expect((await me(service, accessToken)).status).toBe(200)
    const set = (table: 'users' | 'organizations', column: 'email' | 'id', value: string, status: string) =>
      service.storage.write((tx) =>
        tx
          .updateTable(table as 'users')
          .set({ status })
          .where(column as 'id', '=', value)
          .execute(),
      )
    await set('organizations', 'id', orgId, 'suspended')
    expect(await me(service, accessToken)).toMatchObject({ status: 403, body: { code: 'tenant_inactive' } })
    await set('organizations', 'id', orgId, 'active')
    expect((await me(service, accessToken)).status).toBe(200)
    await set('users', 'email', email, 'disabled')
    expect(await me(service, accessToken)).toMatchObject({ status: 403, body: { code: 'account_inactive' } })
    const refreshed = await send(service.url, 'POST', '/api/v1/auth/refresh', { body: { refreshToken } })
    expect(refreshed).toMatchObject({ status: 401, body: { code: 'invalid_refresh_token' } })
  })

  it('a forged token, or one that is no access token, is rejected', async () => {
    const service = await start()
    const { accessToken, refreshToken } = await signIn(service)
    const [head, payload, signature] = accessToken.split('.') as [string, string, string]
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Record<string, unknown>
    const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const signed = (changed: object, secret = testSecrets.JWT_SECRET) =>
      new SignJWT({ ...claims, ...changed })
        .setProtectedHeader({ alg: 'HS256' })
        .sign(new TextEncoder().encode(secret))
    expect((await me(service, await signed({}))).status, 'the forger works').toBe(200)
    const forged = [
      await signed({}, 'another secret, also of more than 32 characters'),
      await signed({ type: 'refresh' }),
      await signed({ aud: 'someone-else' }),
      await signed({ iss: 'someone-else' }),
      await signed({ sub: '00000000-0000-7000-8000-00000000dead' }),
      await signed({ aep: 99 }),
      await signed({ ctx: { kind: 'partner', partnerId: '00000000-0000-7000-8000-00000000dead' } }),
      `${encode({ alg: 'none' })}.${payload}.`,
      `${head}.${encode({ ...claims, mfa: true })}.${signature}`,
      refreshToken,
    ]
    for (const token of forged) {
      expect(await me(service, token)).toMatchObject({ status: 401, body: { code: 'invalid_token' } })
    }
    const key = `svc_${'a'.repeat(32)}`
    expect((await me(service, key)).body).toMatchObject({
      code: 'invalid_token',
      error: expect.stringContaining('X-API-Key'),
    })
    const keyed = await send(service.url, 'GET', '/api/v1/auth/me', { headers: { 'x-api-key': key } })
    expect(keyed).toMatchObject({ status: 401, body: { error: expect.stringContaining('access token') } })
    for (const authorization of ['', 'Bearer', 'Bearer ', `Basic ${accessToken}`, accessToken]) {
      const reply = await send(service.url, 'GET', '/api/v1/auth/me', { headers: { authorization } })
      expect(reply).toMatchObject({ status: 401, body: { code: 'unauthenticated' } })
    }
  })
})
