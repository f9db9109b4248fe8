import { describe, expect, it } from 'vitest'
import { readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import { api } from '../../src/api.ts'
import { addPerson, addTenant, audited, login, password, post, signIn } from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { serviceOn, startService, type TestService, testClock } from '../harness.ts'
import { received, tokenIn } from './mailbox.ts'

const better = 'seven purple elephants on a roof'

const forgot = (service: TestService, email: string) =>
  post(service, '/auth/forgot-password', undefined, { email })
const reset = (service: TestService, token: string, wanted = better) =>
  post(service, '/auth/reset-password', undefined, { token, password: wanted })

inTurn((open) => {
  async function withPerson(options: Parameters<typeof startService>[1] = {}) {
    const service = await startService(open, options)
    const { orgId } = await addTenant(service)
    const email = await addPerson(service, 'grace', { orgId }, 'Org Viewer')
    return { service, email, who: { email, password } }
  }

  describe('a password reset', () => {
    it('works by a mailed link, and ends all sessions on all replicas', async () => {
      const { service, email, who } = await withPerson()
      const second = await serviceOn(service)
      const before = await signIn(service, who)
      expect(await second.client(before.accessToken).call(api.auth.me)).toBeDefined()

      expect((await forgot(service, email)).status).toBe(200)
      const token = tokenIn(await received(service, email, 'password-reset'))
      expect(await reset(service, token)).toMatchObject({
        status: 200,
        body: { success: true, message: 'Password reset successfully' },
      })
      for (const one of [service, second]) {
        await expect(one.client(before.accessToken).call(api.auth.me)).rejects.toMatchObject({ status: 401 })
        const { refreshToken } = before
        expect((await post(one, '/auth/refresh', undefined, { refreshToken })).status).toBe(401)
      }
      expect((await login(service, who)).status).toBe(401)
      expect((await login(service, { email, password: better })).status).toBe(200)
      expect((await received(service, email, 'password-changed')).text).toContain('password')
      const [entry] = await audited(service, 'user.password.reset')
      expect(entry).toMatchObject({ user: { email }, result: 'success' })
      expect(await audited(service, 'user.password.reset.requested')).toHaveLength(1)
    })

    it('accepts its link once, even when it is used concurrently', async () => {
      const { service, email } = await withPerson()
      await forgot(service, email)
      const token = tokenIn(await received(service, email, 'password-reset'))
      const answers = await Promise.all([1, 2, 3].map((n) => reset(service, token, `${better} ${n}`)))
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400])
      expect(await reset(service, token)).toMatchObject({
        status: 400,
        body: { error: 'Invalid or expired reset token', code: 'invalid_reset_token' },
      })
    })

    it('accepts only the newest link, for one hour', async () => {
      const clock = testClock()
      const { service, email } = await withPerson({ clock })
      await forgot(service, email)
      const first = tokenIn(await received(service, email, 'password-reset'))
      clock.forward(1)
      await forgot(service, email)
      let second = first
      while (second === first) second = tokenIn(await received(service, email, 'password-reset'))
      expect((await reset(service, first)).status).toBe(400)
      clock.forward(3600)
      expect((await reset(service, second)).status).toBe(400)
    })

    it('gives the same answer for unknown and disabled accounts, and mails them nothing', async () => {
      const { service, email } = await withPerson()
      const answers = [await forgot(service, 'nobody@example.com'), await forgot(service, email)]
      await received(service, email, 'password-reset')
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ status: 'disabled' }).where('email', '=', email).execute(),
      )
      answers.push(await forgot(service, email))
      for (const { status, body } of answers) {
        expect([status, body]).toEqual([200, answers[0]!.body])
      }
      await expect
        .poll(() => service.storage.read.selectFrom('password_reset_requests').selectAll().execute(), {
          timeout: 5000,
        })
        .toEqual([])
      expect((await readOutboxMessages(service.dataDir)).map(({ to }) => to)).toEqual([email])
    })

    it('can be requested three times an hour for one address', async () => {
      const { service, email } = await withPerson({ env: { RATE_LIMIT_FORGOT: '3/3600' } })
      const statuses = []
      for (let n = 0; n < 4; n += 1) statuses.push((await forgot(service, email)).status)
      expect(statuses).toEqual([200, 200, 200, 429])
    })
  })

  describe('a password change', () => {
    it('demands the current password, ends all sessions of the user, and affects nobody else', async () => {
      const { service, email, who } = await withPerson()
      const { accessToken } = await signIn(service, who)
      const other = await signIn(service, who)
      const change = (currentPassword: string, newPassword: string) =>
        post(service, '/auth/change-password', accessToken, { currentPassword, newPassword })

      expect(await change('not it', better)).toMatchObject({
        status: 401,
        body: { error: 'Current password is incorrect', code: 'wrong_password' },
      })
      expect(await change(password, password)).toMatchObject({ status: 400 })
      expect(await change(password, better)).toMatchObject({ status: 200 })
      for (const token of [accessToken, other.accessToken]) {
        await expect(service.client(token).call(api.auth.me)).rejects.toMatchObject({ status: 401 })
      }
      expect((await login(service, { email, password: better })).status).toBe(200)
      expect((await login(service)).status).toBe(200)
    })

    it('is refused for an account without a password, and names the field', async () => {
      const { service, email, who } = await withPerson()
      const { accessToken } = await signIn(service, who)
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ password_hash: null }).where('email', '=', email).execute(),
      )
      const body = { currentPassword: password, newPassword: better }
      const message = 'Password authentication is not available for this account'
      expect(await post(service, '/auth/change-password', accessToken, body)).toMatchObject({
        status: 400,
        body: { error: message, details: [{ path: 'body.currentPassword', message }] },
      })
    })

    it('cannot be used to guess the password', async () => {
      const { service, who } = await withPerson({ env: { RATE_LIMIT_PASSWORD: '5/300' } })
      const { accessToken } = await signIn(service, who)
      const statuses = []
      for (let n = 0; n < 6; n += 1) {
        const body = { currentPassword: `guess ${n}`, newPassword: better }
        statuses.push((await post(service, '/auth/change-password', accessToken, body)).status)
      }
      expect(statuses).toEqual([401, 401, 401, 401, 401, 429])
    })

    it.each([
      ['short', 'Password must be at least 8 characters'],
      ['p'.repeat(129), 'Password must be at most 128 characters'],
      ['Password1!', 'Password is too easy to guess.'],
      ['grace@example.com', 'Password is too easy to guess.'],
      ['qwertzuiop', 'Password is too easy to guess.'],
    ])('refuses %s and explains why', async (weak, message) => {
      const { service, who } = await withPerson()
      const { accessToken } = await signIn(service, who)
      const body = { currentPassword: password, newPassword: weak }
      const answer = await post(service, '/auth/change-password', accessToken, body)
      expect(answer.status).toBe(400)
      const said = answer.body as { error?: string; details?: { path: string }[] }
      expect(said.error).toContain(message)
      expect(said.details?.[0]?.path).toBe('body.newPassword')
      expect((await login(service, who)).status).toBe(200)
    })
  })

  it('a blocked account notifies its owner with a password reset link that works', async () => {
    const { service, email } = await withPerson({ env: { RATE_LIMIT_WRONG_PASSWORDS_NETWORK: '5/900' } })
    for (let n = 0; n < 5; n += 1) await login(service, { email, password: `guess ${n}` })
    expect((await received(service, email, 'sign-in-stopped')).links[0]).toMatch(/\/forgot-password$/)
    await forgot(service, email)
    const token = tokenIn(await received(service, email, 'password-reset'))
    await reset(service, token)
    expect((await login(service, { email, password: better })).status).toBe(200)
  })
})
