import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import {
  addPerson,
  addTenant,
  audited,
  codeAt,
  enrolFactor,
  login,
  password,
  post,
  signIn,
} from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { received } from './mailbox.ts'

type Answer = { code?: string; error?: string; tokens?: { accessToken: string }; recoveryCodes?: string[] }

inTurn((open) => {
  async function withPerson(settings: Record<string, unknown> = {}, env: Record<string, string> = {}) {
    const clock = testClock()
    const service = await startService(open, { clock, env })
    const { orgId } = await addTenant(service, settings)
    const email = await addPerson(service, 'grace', { orgId }, 'Org Viewer')
    const who = { email, password }
    const { accessToken } = await signIn(service, who)
    const call = (path: string, body?: unknown, token: string | undefined = accessToken) =>
      post(service, path, token, body) as Promise<{ status: number; body: Answer }>
    return { service, clock, email, who, orgId, accessToken, call }
  }

  describe('an authenticator app', () => {
    it('is enrolled with the recovery codes shown by the setup', async () => {
      const { service, clock, accessToken } = await withPerson()
      const client = service.client(accessToken)
      const setup = await client.call(api.auth.setupMfa)
      const code = codeAt(setup.secret, clock)
      const enabled = await client.call(api.auth.enableMfa, { body: { code } })
      expect(enabled.recoveryCodes).toEqual(setup.recoveryCodes)
      expect(enabled.recoveryCodes).toHaveLength(10)
    })

    it('can also be confirmed at /auth/mfa/verify', async () => {
      const { service, clock, email, call } = await withPerson()
      const { body } = (await call('/auth/mfa/setup')) as unknown as { body: { secret: string } }
      const confirmed = await call('/auth/mfa/verify', { code: codeAt(body.secret, clock) })
      expect(confirmed).toMatchObject({
        status: 200,
        body: { success: true, message: 'MFA enabled successfully' },
      })
      const mine = service.client(confirmed.body.tokens?.accessToken)
      expect(await mine.call(api.auth.me)).toMatchObject({ mfaVerified: true, user: { mfaMethod: 'totp' } })
      expect((await received(service, email, 'factors-changed')).text).toContain('authenticator')
    })

    it('cannot be confirmed without a session or tempToken', async () => {
      const { service } = await withPerson()
      expect(await post(service, '/auth/mfa/verify', undefined, { code: '123456' })).toMatchObject({
        status: 401,
        body: { code: 'unauthenticated' },
      })
    })

    it('is told by /auth/me with the time of its proof, which a refresh keeps', async () => {
      const { service, clock, who, accessToken } = await withPerson()
      const me = (token: string) => service.client(token).call(api.auth.me)
      expect(await me(accessToken)).toMatchObject({ mfaVerified: false, mfaVerifiedAt: null })
      const { secret } = await enrolFactor(service.client(accessToken), clock)
      clock.forward(60)
      const { tempToken = '' } = (await login(service, who)).body
      const proof = { tempToken, code: codeAt(secret, clock) }
      const { tokens } = await service.client().call(api.auth.verifyMfa, { body: proof })
      const provedAt = clock()
      expect(await me(tokens!.accessToken)).toMatchObject({ mfaVerified: true, mfaVerifiedAt: provedAt })
      clock.forward(1200)
      const { refreshToken = '' } = tokens!
      const renewed = await service.client().call(api.auth.refresh, { body: { refreshToken } })
      expect(await me(renewed.tokens.accessToken)).toMatchObject({
        mfaVerified: true,
        mfaVerifiedAt: provedAt,
      })
    })

    it('upgrades a session that has not proved it, and the old session ends', async () => {
      const { service, clock, who, accessToken } = await withPerson()
      const { secret } = await enrolFactor(service.client(accessToken), clock)
      clock.forward(60)
      const { body } = await login(service, who)
      const step = await post(service, '/auth/mfa/verify', undefined, {
        tempToken: body.tempToken,
        code: codeAt(secret, clock),
      })
      const first = step.body.tokens!.accessToken
      // A session without the MFA claim, as single sign-on creates it.
      await service.storage.write((tx) => tx.updateTable('sessions').set({ mfa: 0 }).execute())
      clock.forward(60)
      const again = await post(service, '/auth/mfa/verify', first, { code: codeAt(secret, clock) })
      expect(again.status).toBe(200)
      const upgraded = service.client(again.body.tokens!.accessToken)
      expect((await upgraded.call(api.auth.me)).mfaVerified).toBe(true)
      await expect(service.client(first).call(api.auth.me)).rejects.toMatchObject({ status: 401 })
    })

    it.each([
      ['a code', (secret: string, clock: () => string) => codeAt(secret, clock)],
      ['a recovery code', (_: string, __: () => string, recovery: string) => recovery],
    ])('is removed with %s, together with all its data', async (_, proof) => {
      const { service, clock, email, who, accessToken } = await withPerson()
      const enrolled = await enrolFactor(service.client(accessToken), clock)
      clock.forward(60)
      const token = enrolled.tokens.accessToken
      const disable = (code: string) => post(service, '/auth/mfa/disable', token, { code })
      expect(await disable('000000')).toMatchObject({ status: 401, body: { code: 'invalid_mfa_code' } })
      const done = await disable(proof(enrolled.secret, clock, enrolled.recoveryCodes[0]!))
      expect(done).toMatchObject({ status: 200, body: { message: 'MFA disabled successfully' } })
      expect(
        await post(service, '/auth/mfa/disable', done.body.tokens!.accessToken, { code: '1' }),
      ).toMatchObject({
        status: 400,
        body: { error: 'MFA is not enabled' },
      })
      await expect(service.client(token).call(api.auth.me)).rejects.toMatchObject({ status: 401 })
      expect((await login(service, who)).body).toMatchObject({ mfaRequired: false })
      const kept = await service.storage.read
        .selectFrom('users')
        .select(['totp_secret', 'phone_number', 'mfa_method'])
        .where('email', '=', email)
        .execute()
      expect(kept).toEqual([{ totp_secret: null, phone_number: null, mfa_method: null }])
      expect(await service.storage.read.selectFrom('recovery_codes').selectAll().execute()).toEqual([])
      expect((await audited(service, 'auth.mfa.disable')).map(({ result }) => result)).toEqual([
        'success',
        'failure',
      ])
    })

    it.each([
      [{ security: { requireMfa: true } }],
      [{ security: { allowedMfaMethods: { sms: false } } }],
      [{ security: { allowedMethods: { totp: true, sms: false } } }],
    ])('cannot be removed when the organization has the settings %o', async (settings) => {
      const { service, clock, accessToken } = await withPerson(settings)
      const { tokens, recoveryCodes } = await enrolFactor(service.client(accessToken), clock)
      const answer = await post(service, '/auth/mfa/disable', tokens.accessToken, { code: recoveryCodes[0] })
      expect(answer).toMatchObject({
        status: 403,
        body: {
          code: 'mfa_enforced',
          error: 'Your organization requires MFA. Contact your admin to change this policy.',
        },
      })
    })
  })

  describe('recovery codes', () => {
    it('are replaced as a whole by a session that has proved a factor', async () => {
      const { service, clock, who, accessToken, call } = await withPerson()
      expect(await call('/auth/mfa/recovery-codes')).toMatchObject({
        status: 403,
        body: { code: 'mfa_required' },
      })
      const { tokens, recoveryCodes: old } = await enrolFactor(service.client(accessToken), clock)
      const fresh = await service.client(tokens.accessToken).call(api.auth.newRecoveryCodes)
      expect(new Set([...old, ...fresh.recoveryCodes]).size).toBe(20)
      const use = async (code: string) => {
        const { body } = await login(service, who)
        return (await post(service, '/auth/mfa/verify', undefined, { tempToken: body.tempToken, code }))
          .status
      }
      expect([
        await use(old[0]!),
        await use(fresh.recoveryCodes[0]!),
        await use(fresh.recoveryCodes[0]!),
      ]).toEqual([401, 200, 401])
    })
  })

  describe('a password sent with a request', () => {
    it.each([
      ['/auth/mfa/setup', {}],
      ['/auth/mfa/enable', { code: '123456' }],
      ['/auth/phone/verify', { phoneNumber: '+4915112345678' }],
      ['/auth/phone/confirm', { phoneNumber: '+4915112345678', code: '123456' }],
    ])('is checked at %s', async (path, body) => {
      const { call } = await withPerson()
      if (path.endsWith('enable')) await call('/auth/mfa/setup')
      const wrong = await call(path, { ...body, currentPassword: 'not it' })
      expect(wrong).toMatchObject({ status: 401, body: { code: 'wrong_password' } })
      const right = await call(path, { ...body, currentPassword: password })
      expect(right.body.code).not.toBe('wrong_password')
    })
  })

  it('the MFA routes do not exist without ENABLE_2FA', async () => {
    const { call } = await withPerson({}, { ENABLE_2FA: 'false' })
    for (const [path, body] of [
      ['/auth/mfa/setup', undefined],
      ['/auth/mfa/enable', { code: '123456' }],
      ['/auth/mfa/disable', { code: '123456' }],
      ['/auth/mfa/recovery-codes', undefined],
      ['/auth/mfa/sms/enable', undefined],
      ['/auth/phone/verify', { phoneNumber: '+4915112345678' }],
    ] as const)
      expect([path, (await call(path, body)).status]).toEqual([path, 404])
  })
})
