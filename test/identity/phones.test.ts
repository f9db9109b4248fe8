import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { Problem } from '../../src/core/errors.ts'
import type { PhoneCodes } from '../../src/messages/ports.ts'
import { addPerson, addTenant, enrolFactor, login, password, post, signIn } from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { received } from './mailbox.ts'

const phoneNumber = '+4915112345678'

inTurn((open) => {
  type Options = Parameters<typeof startService>[1]

  async function withPerson(settings: Record<string, unknown> = {}, options: Options = {}) {
    const clock = testClock()
    const service = await startService(open, { clock, ...options })
    const { orgId, partnerId } = await addTenant(service, settings)
    const email = await addPerson(service, 'grace', { orgId }, 'Org Viewer')
    const who = { email, password }
    const { accessToken } = await signIn(service, who)
    const call = (path: string, body?: unknown, token: string | undefined = accessToken) =>
      post(service, path, token, body)
    /** The code in the newest SMS. */
    const code = async () => /\d{6}/.exec((await received(service, phoneNumber, 'sms-code')).text)?.[0] ?? ''
    const prove = async () => {
      await call('/auth/phone/verify', { phoneNumber })
      return call('/auth/phone/confirm', { phoneNumber, code: await code() })
    }
    return { service, clock, email, who, partnerId, accessToken, call, code, prove }
  }

  describe('a phone number', () => {
    it('is verified by the code sent to it, and only its last digits are ever shown', async () => {
      const { service, accessToken, prove } = await withPerson()
      expect(await prove()).toMatchObject({ status: 200, body: { message: 'Phone number verified' } })
      const { user } = await service.client(accessToken).call(api.auth.me)
      expect(user).toMatchObject({ phoneVerified: true, phoneLast4: '5678', mfaEnabled: false })
      expect(JSON.stringify(user)).not.toContain(phoneNumber)
    })

    it('is not verified by a wrong code, nor by the code of another number', async () => {
      const { call, code } = await withPerson()
      await call('/auth/phone/verify', { phoneNumber })
      const right = await code()
      const wrong = right === '000000' ? '000001' : '000000'
      for (const body of [
        { phoneNumber, code: wrong },
        { phoneNumber: '+4915187654321', code: right },
      ])
        expect(await call('/auth/phone/confirm', body)).toMatchObject({
          status: 401,
          body: { code: 'invalid_verification_code' },
        })
    })

    it('is sent at most three codes an hour', async () => {
      const { call } = await withPerson({}, { env: { RATE_LIMIT_PHONE: '3/3600' } })
      const statuses = []
      for (let n = 0; n < 4; n += 1) statuses.push((await call('/auth/phone/verify', { phoneNumber })).status)
      expect(statuses).toEqual([200, 200, 200, 429])
    })

    it.each(['12345', '+0123456789', '+49 151 123', 'x'])('is refused as %s', async (bad) => {
      const { call } = await withPerson()
      expect((await call('/auth/phone/verify', { phoneNumber: bad })).status).toBe(400)
    })

    it('cannot be changed by a session that has not proved the enrolled factor', async () => {
      const { service, clock, accessToken } = await withPerson()
      await enrolFactor(service.client(accessToken), clock)
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ mfa_epoch: 1 }).where('email', '=', 'grace@example.com').execute(),
      )
      await service.storage.write((tx) => tx.updateTable('sessions').set({ revoked_at: null }).execute())
      const answer = await post(service, '/auth/phone/verify', accessToken, { phoneNumber })
      expect(answer).toMatchObject({ status: 403, body: { code: 'mfa_required' } })
    })

    it.each([
      ['sms_not_configured', 501],
      ['sms_unavailable', 502],
    ] as const)('reports that the SMS service answers %s', async (problem, status) => {
      const fail = async () => {
        throw new Problem(problem)
      }
      const phoneCodes: PhoneCodes = { send: fail, check: fail }
      const { call } = await withPerson({}, { outside: { phoneCodes } })
      expect(await call('/auth/phone/verify', { phoneNumber })).toMatchObject({
        status,
        body: { code: problem },
      })
    })
  })

  describe('SMS as a second factor', () => {
    it('accepts a code sent for the sign-in, or a recovery code', async () => {
      const { service, who, clock, call, prove, code } = await withPerson()
      expect(await call('/auth/mfa/sms/enable')).toMatchObject({
        status: 400,
        body: { error: 'Phone number must be verified before enabling SMS MFA' },
      })
      await prove()
      const enabled = await call('/auth/mfa/sms/enable')
      expect(enabled.status).toBe(200)
      const { recoveryCodes } = enabled.body as unknown as { recoveryCodes: string[] }
      expect(recoveryCodes).toHaveLength(10)

      clock.forward(1)
      const { body } = await login(service, who)
      expect(body).toMatchObject({ mfaRequired: true, mfaMethod: 'sms', user: null, tokens: null })
      const { tempToken } = body
      expect(await post(service, '/auth/mfa/sms/send', undefined, { tempToken })).toMatchObject({
        status: 200,
        body: { success: true, message: 'SMS code sent' },
      })
      const signedIn = await post(service, '/auth/mfa/verify', undefined, { tempToken, code: await code() })
      expect(signedIn.status).toBe(200)
      const mine = service.client(signedIn.body.tokens!.accessToken)
      expect(await mine.call(api.auth.me)).toMatchObject({ mfaVerified: true, user: { mfaMethod: 'sms' } })

      const again = await login(service, who)
      const recovered = await post(service, '/auth/mfa/verify', undefined, {
        tempToken: again.body.tempToken,
        code: recoveryCodes[3],
      })
      expect(recovered.status).toBe(200)
    })

    it('is refused when the organization does not allow it', async () => {
      const { prove, call } = await withPerson({ security: { allowedMfaMethods: { sms: false } } })
      await prove()
      expect(await call('/auth/mfa/sms/enable')).toMatchObject({
        status: 403,
        body: { code: 'sms_not_allowed', error: 'Your organization does not allow SMS MFA' },
      })
    })

    it('cannot be enabled beside an authenticator app', async () => {
      const { service, clock, accessToken, prove } = await withPerson()
      await prove()
      const { tokens } = await enrolFactor(service.client(accessToken), clock)
      expect(await post(service, '/auth/mfa/sms/enable', tokens.accessToken)).toMatchObject({
        status: 409,
        body: { error: 'MFA is already enabled. Disable it first to switch methods.' },
      })
    })

    it('sends at most three codes per sign-in and five per phone in 15 minutes', async () => {
      const env = { RATE_LIMIT_SMS: '3/300', RATE_LIMIT_SMS_PHONE: '5/900' }
      const { service, who, call, prove } = await withPerson({}, { env })
      await prove()
      await call('/auth/mfa/sms/enable')
      const send = async (tempToken: string | undefined, times: number) => {
        const statuses = []
        for (let n = 0; n < times; n += 1)
          statuses.push((await post(service, '/auth/mfa/sms/send', undefined, { tempToken })).status)
        return statuses
      }
      expect(await send((await login(service, who)).body.tempToken, 4)).toEqual([200, 200, 200, 429])
      expect(await send((await login(service, who)).body.tempToken, 3)).toEqual([200, 200, 429])
      expect(await send('made-up', 1)).toEqual([401])
    })

    it('does not satisfy a role with Force MFA, which demands an authenticator app', async () => {
      const { service, partnerId } = await withPerson()
      const email = await addPerson(service, 'boss', { partnerId }, 'Partner Admin')
      const { accessToken } = await signIn(service, { email, password })
      const call = (path: string, body?: unknown) => post(service, path, accessToken, body)
      const number = '+4915100000001'
      await call('/auth/phone/verify', { phoneNumber: number })
      const text = (await received(service, number, 'sms-code')).text
      await call('/auth/phone/confirm', { phoneNumber: number, code: /\d{6}/.exec(text)![0] })
      const { body } = await call('/auth/mfa/sms/enable')
      const client = service.client(body.tokens!.accessToken)
      await expect(client.call(api.orgs.list)).rejects.toMatchObject({ status: 428 })
    })
  })
})
