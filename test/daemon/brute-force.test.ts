import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { defaultLimits } from '../../src/core/limits.ts'
import { sweepMarks } from '../../src/identity/password-guard/store.ts'
import { inTurn } from '../databases.ts'
import { serviceOn, startService, type TestService, testClock } from '../harness.ts'
import { lettersOf, unsent } from '../identity/mail.ts'
import { received, tokenIn } from '../identity/mailbox.ts'
import {
  addPerson,
  addTenant,
  admin,
  audited,
  codeAt,
  enrolFactor,
  login,
  password,
  sameFor,
  signIn,
} from './people.ts'
import { type Reply, send } from './request.ts'

/** The limits that apply when none is set. */
const documented = Object.fromEntries(
  Object.entries(defaultLimits).map(([name, { count, seconds }]) => [
    `RATE_LIMIT_${name}`,
    `${count}/${seconds}`,
  ]),
)
const behindProxy = { ...documented, TRUST_PROXY_HEADERS: 'true' }

const from = (address: string) => ({ 'x-service-client': 'cli', 'x-forwarded-for': address })
/** The nth address of an attacker with many addresses. */
const nth = (n: number) => `198.51.100.${n}`
const here = '203.0.113.7'
/** An address in the nth of many networks. */
const network = (n: number) => `198.${n}.100.7`

const count = (n: number) => Array.from({ length: n }, (_, i) => i + 1)
const statuses = (replies: readonly Reply<unknown>[]) => replies.map(({ status }) => status)

/** Sequentially: the order decides which requests are refused. */
async function each<T>(items: readonly T[], ask: (item: T) => Promise<Reply<unknown>>) {
  const replies: Reply<unknown>[] = []
  for (const item of items) replies.push(await ask(item))
  return replies
}

/** The seconds of a 429, which the body and the Retry-After header state alike. */
function waitOf({ status, headers, body }: Reply<unknown>): number {
  const { code, retryAfter } = body as { code?: string; retryAfter?: number }
  expect([status, code, headers['retry-after']]).toEqual([429, 'rate_limited', String(retryAfter)])
  return retryAfter!
}

inTurn((open) => {
  /** Blocks and codes use the clock of the service, rate limits that of the process. */
  const clock = testClock()
  const pass = (seconds: number) => {
    clock.forward(seconds)
    vi.advanceTimersByTime(seconds * 1000)
  }
  beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
  afterEach(() => void vi.useRealTimers())

  const start = (env: Record<string, string> = behindProxy) => startService(open, { clock, env })
  const guess = (service: TestService, email: string, address: string, secret = 'a wrong password') =>
    login(service, { email, password: secret }, from(address))

  describe('password attempts from one address', () => {
    it('are limited to ten in five minutes; further attempts do not extend the wait', async () => {
      const service = await start()
      const strangers = count(10).map((n) => `person${n}@example.com`)
      const round = () => each(strangers, (email) => guess(service, email, here))
      expect(statuses(await round())).toEqual(count(10).map(() => 401))
      expect(waitOf(await guess(service, 'person11@example.com', here))).toBe(300)
      expect(waitOf(await login(service, admin, from(here))), 'also with the right password').toBe(300)
      expect((await login(service, admin, from(nth(1)))).status, 'from elsewhere').toBe(200)

      for (const left of [200, 100, 1]) {
        pass(left === 1 ? 99 : 100)
        for (const email of strangers) expect(waitOf(await guess(service, email, here))).toBe(left)
      }
      pass(1)
      expect(statuses(await round()), 'all ten again').toEqual(count(10).map(() => 401))
      expect(waitOf(await guess(service, 'person11@example.com', here))).toBe(300)
    })

    it('are limited to five in five minutes per account, whether or not the account exists', async () => {
      const service = await start()
      const { orgId } = await addTenant(service)
      const known = await addPerson(service, 'known', { orgId }, 'Org Viewer')
      const unknown = 'unknown@example.com'
      const tries = (email: string, address: string) => each(count(6), () => guess(service, email, address))
      const [one, other] = [await tries(known, nth(1)), await tries(unknown, nth(2))]
      expect(statuses(one)).toEqual([401, 401, 401, 401, 401, 429])
      expect(one.map(sameFor)).toEqual(other.map(sameFor))
      expect(waitOf(one.at(-1)!)).toBe(300)
      expect((await guess(service, 'someone.else@example.com', nth(1))).status).toBe(401)
      expect((await guess(service, unknown, nth(3))).status).toBe(401)
      pass(300)
      expect(statuses(await tries(unknown, nth(2)))).toEqual([401, 401, 401, 401, 401, 429])
    })

    it('are counted by the peer address, not by forwarded headers, without a trusted proxy', async () => {
      const service = await start(documented)
      const names = ['x-forwarded-for', 'x-real-ip', 'cf-connecting-ip', 'true-client-ip', 'forwarded']
      const lies = (n: number) => Object.fromEntries(names.map((name) => [name, nth(n)]))
      const replies = await each(count(11), (n) =>
        login(service, { email: `person${n}@example.com`, password: 'a wrong password' }, lies(n)),
      )
      expect(statuses(replies)).toEqual([...count(10).map(() => 401), 429])
    })
  })

  describe('wrong passwords', () => {
    const many = { ...behindProxy, RATE_LIMIT_LOGIN_IP: 'off', RATE_LIMIT_LOGIN_ACCOUNT: 'off' }

    async function withOwner(env: Record<string, string> = many) {
      const service = await start(env)
      const { orgId } = await addTenant(service)
      const email = await addPerson(service, 'owner', { orgId }, 'Org Viewer')
      const right = (address: string, more: Record<string, string> = {}) =>
        send<{ tokens?: { refreshToken: string } }>(service.url, 'POST', '/api/v1/auth/login', {
          body: { email, password, ...more },
          headers: from(address),
        })
      const wrong = (address: string, to = email) => guess(service, to, address)
      /** Enters wrong passwords until unknown clients need a proof. */
      const enterWrongPasswords = (to = email) => each(count(50), (n) => wrong(network(n), to))
      return { service, email, right, wrong, enterWrongPasswords }
    }

    it('block their network for 15 minutes after five, with the same reply as before', async () => {
      const { service, right, wrong } = await withOwner()
      const five = await each(count(5), (n) => wrong(nth(n)))
      expect(statuses(five)).toEqual([401, 401, 401, 401, 401])
      const others = [
        await right(nth(6)),
        await right(`::ffff:${nth(7)}`),
        await right('::ffff:c633:6408'),
        await wrong(nth(9)),
        await guess(service, 'unknown@example.com', nth(8), password),
      ]
      for (const reply of [...five, ...others]) expect(sameFor(reply)).toEqual(sameFor(five[0]!))
      expect((await right(here)).status, 'the owner, elsewhere').toBe(200)

      pass(15 * 60 - 1)
      // Refused attempts do not extend the block, and do not count for the next.
      await each(count(6), (n) => wrong(nth(n + 10)))
      expect((await right(nth(1))).status).toBe(401)
      pass(1)
      expect((await right(nth(1))).status).toBe(200)
      const reasons = (await audited(service, 'user.login.failed')).map(({ details }) => details.reason)
      expect(reasons.filter((reason) => reason === 'network_stopped')).toHaveLength(11)
    })

    it('count per /64 of IPv6', async () => {
      const { right, wrong } = await withOwner()
      await each(count(5), (n) => wrong(`2001:db8:1:2:${n}::1`))
      expect((await right('2001:db8:1:2:ffff::9')).status).toBe(401)
      expect((await right('2001:db8:1:3::9')).status).toBe(200)
    })

    it('are all counted when they arrive at the same moment', async () => {
      const { email, wrong, right } = await withOwner()
      const replies = await Promise.all(count(20).map((n) => wrong(nth(n), email)))
      expect(statuses(replies)).toEqual(count(20).map(() => 401))
      expect((await right(nth(1))).status).toBe(401)
    })

    it('are counted by all replicas together', async () => {
      const { service, email, wrong, right } = await withOwner()
      const second = await serviceOn(service, { clock, env: many })
      await each(count(3), () => wrong(here))
      await each(count(2), () => guess(second, email, here))
      expect((await right(here)).status).toBe(401)
      expect((await guess(second, email, here, password)).status).toBe(401)
    })

    it('are forgiven by a correct password after four', async () => {
      const { wrong, right } = await withOwner()
      for (const _ of count(3)) {
        await each(count(4), () => wrong(here))
        expect((await right(here)).status).toBe(200)
      }
    })

    it('from many networks require proof from clients that the account does not know', async () => {
      const { service, email, right, enterWrongPasswords } = await withOwner()
      const { tokens } = (await right(here)).body
      const all = await enterWrongPasswords()
      for (const reply of all) expect(sameFor(reply)).toEqual(sameFor(all[0]!))
      const stranger = await right(network(99))
      expect(sameFor(stranger)).toEqual(sameFor(all[0]!))
      const [entry] = await audited(service, 'user.login.failed')
      expect(entry?.details).toMatchObject({ reason: 'proof_required' })

      const { refreshToken } = tokens!
      expect((await right(network(99), { refreshToken })).status, 'from anywhere').toBe(200)
      const cookie = { cookie: `service_refresh_token=${refreshToken}` }
      expect((await login(service, { email, password }, { ...from(here), ...cookie })).status).toBe(200)
      // Neither an invented token nor that of another user.
      const { tokens: others } = (await login(service, admin, from(here))).body
      for (const made of [`${refreshToken.slice(0, -1)}!`, others!.refreshToken!, 'x', '.', ''])
        expect((await right(here, made ? { refreshToken: made } : {})).status, made).toBe(401)

      pass(3600)
      expect((await right(network(99))).status, 'an hour later').toBe(200)
    })

    it('from a blocked network do not block a client that the account knows', async () => {
      const { right, wrong } = await withOwner()
      const { refreshToken } = (await right(here)).body.tokens!
      await each(count(6), () => wrong(here))
      expect((await right(here)).status).toBe(401)
      expect((await right(here, { refreshToken })).status).toBe(200)
    })

    it('with a stolen refresh token are limited as well, and the owner can sign in', async () => {
      const { service, email, right } = await withOwner()
      const { refreshToken } = (await right(here)).body.tokens!
      const stolen = (address: string, secret: string) =>
        send(service.url, 'POST', '/api/v1/auth/login', {
          body: { email, password: secret, refreshToken },
          headers: from(address),
        })
      await each(count(10), () => stolen(nth(1), 'a wrong password'))
      expect((await stolen(nth(1), password)).status, 'the thief').toBe(401)
      expect((await stolen(here, password)).status, 'the owner').toBe(200)
    })

    it('are cleared for a password that is reset by e-mail link, at the network that reset it', async () => {
      const { service, email, enterWrongPasswords, right } = await withOwner()
      await enterWrongPasswords()
      expect((await right(here)).status).toBe(401)
      await send(service.url, 'POST', '/api/v1/auth/forgot-password', {
        body: { email },
        headers: from(here),
      })
      const token = tokenIn(await received(service, email, 'password-reset'))
      const better = 'seven purple elephants on a roof'
      const reset = { token, password: better }
      const path = '/api/v1/auth/reset-password'
      expect((await send(service.url, 'POST', path, { body: reset, headers: from(here) })).status).toBe(200)
      await enterWrongPasswords()
      expect((await guess(service, email, network(99), better)).status).toBe(401)
      expect((await guess(service, email, here, better)).status).toBe(200)
    })

    it('never lock a system administrator out on the machine itself, whatever a header says', async () => {
      const { service, enterWrongPasswords } = await withOwner()
      await enterWrongPasswords(admin.email)
      await each(count(6), () => login(service, { ...admin, password: 'a wrong password' }, {}))
      const local = () => login(service, admin, { 'x-service-client': 'cli' })
      expect((await local()).status).toBe(200)
      for (const address of [here, '127.0.0.1', '::1', 'localhost'])
        expect((await guess(service, admin.email, address, password)).status, address).toBe(401)
      for (const name of ['x-real-ip', 'forwarded', 'via', 'x-forwarded-for'])
        expect((await login(service, admin, { [name]: '127.0.0.1' })).status, name).toBe(401)
    })

    it('notify the owner once per hour of a blocked network and of guessing', async () => {
      const service = await startService(open, { clock, env: many, outside: { mailer: unsent(false) } })
      const { orgId } = await addTenant(service)
      const email = await addPerson(service, 'owner', { orgId }, 'Org Viewer')
      for (const n of count(12)) await each(count(5), () => guess(service, email, network(n)))
      const mails = await lettersOf(service)
      expect(mails.map(({ kind }) => kind)).toEqual(['sign-in-stopped', 'sign-in-guarded'])
      expect(mails[0]).toMatchObject({ to: email, text: expect.stringContaining('198.1.100.0/24') })
    })

    it('have configurable limits, and metrics', async () => {
      const env = { RATE_LIMIT_WRONG_PASSWORDS_NETWORK: '2/60', RATE_LIMIT_WRONG_PASSWORDS_ACCOUNT: '3/120' }
      const { service, wrong, right } = await withOwner({ ...many, ...env, METRICS_TOKEN: 'metrics' })
      await each(count(2), () => wrong(here))
      expect((await right(here)).status).toBe(401)
      pass(60)
      expect((await right(here)).status).toBe(200)
      await each(count(3), (n) => wrong(network(n)))
      expect((await right(here)).status).toBe(401)
      const headers = { authorization: 'Bearer metrics' }
      const seen = async () => (await fetch(`${service.url}/metrics`, { headers })).text()
      expect(await seen()).toMatch(/svc_passwords_stopped_total\{reason="network_stopped"\} 1\n/)
      expect(await seen()).toMatch(/svc_passwords_stopped_total\{reason="proof_required"\} 1\n/)
      expect(await seen()).toMatch(/svc_accounts_guarded 1\n/)
      pass(120)
      expect(await seen()).toMatch(/svc_accounts_guarded 0\n/)
      expect((await right(here)).status).toBe(200)
    })

    it('keep one row per account, a bounded number for unknown addresses, and are swept', async () => {
      const { service, wrong } = await withOwner()
      await each(count(10), (n) => wrong(network(n)))
      await each(count(10), (n) => wrong(network(n), `nobody${n}@example.com`))
      const rows = () => service.storage.read.selectFrom('sign_in_marks').selectAll().execute()
      const kept = await rows()
      expect(kept.filter(({ door }) => !/^nobody [0-9a-f]{3}$/.test(door))).toHaveLength(1)
      pass(3601)
      await service.storage.write((tx) => sweepMarks(tx, clock()))
      expect(await rows()).toEqual([])
    })

    it('in a password change block the signed-in user as well, with the seconds to wait', async () => {
      const { service, email, right } = await withOwner({ ...many, RATE_LIMIT_PASSWORD: 'off' })
      const { accessToken } = (await signIn(service, { email, password })) as { accessToken: string }
      const change = (currentPassword: string) =>
        send(service.url, 'POST', '/api/v1/auth/change-password', {
          token: accessToken,
          body: { currentPassword, newPassword: 'seven purple elephants on a roof' },
          headers: from(here),
        })
      // First as a client that the account knows, then as an unknown one.
      expect(statuses(await each(count(10), () => change('a wrong password')))).toEqual(
        count(10).map(() => 401),
      )
      expect(waitOf(await change(password))).toBe(900)
      expect((await right(network(1))).status).toBe(200)
    })
  })

  it('MFA codes are limited to five in five minutes per user, across addresses and sign-ins', async () => {
    const service = await start()
    const { orgId } = await addTenant(service)
    const enrolled = async (name: string) => {
      const email = await addPerson(service, name, { orgId }, 'Org Viewer')
      const { accessToken } = await signIn(service, { email, password })
      return { email, ...(await enrolFactor(service.client(accessToken), clock)) }
    }
    const [victim, other] = [await enrolled('victim'), await enrolled('other')]
    pass(300)
    const enter = async ({ email }: { email: string }, code: string, address: string) => {
      const { body } = await guess(service, email, address, password)
      const headers = from(address)
      const step = { tempToken: body.tempToken, code }
      return send(service.url, 'POST', '/api/v1/auth/mfa/verify', { body: step, headers })
    }
    const wrong = await each(count(5), (n) => enter(victim, '000000', nth(n)))
    expect(statuses(wrong)).toEqual([401, 401, 401, 401, 401])
    expect(waitOf(await enter(victim, codeAt(victim.secret, clock), here))).toBe(300)
    expect(waitOf(await enter(victim, victim.recoveryCodes[0]!, nth(6))), 'recovery codes too').toBe(300)
    expect((await enter(other, codeAt(other.secret, clock), nth(7))).status, 'someone else').toBe(200)
    pass(299)
    expect(waitOf(await enter(victim, codeAt(victim.secret, clock), here))).toBe(1)
    pass(1)
    expect((await enter(victim, codeAt(victim.secret, clock), here)).status).toBe(200)
  })

  it.each([
    ['/auth/register', 5, 3600],
    ['/auth/register-partner', 3, 3600],
    ['/auth/forgot-password', 3, 3600],
    ['/auth/verify-email', 10, 300],
    ['/auth/invite/preview', 30, 600],
    ['/auth/accept-invite', 10, 3600],
  ])('%s allows %d requests in %d seconds per address', async (path, times, seconds) => {
    const service = await start()
    // Counted before the body is read: an invalid one counts as well.
    const ask = (address: string) =>
      send(service.url, 'POST', `/api/v1${path}`, { body: {}, headers: from(address) })
    const all = () => each(count(times), () => ask(here))
    expect(new Set(statuses(await all()))).toEqual(new Set([400]))
    expect(waitOf(await ask(here))).toBe(seconds)
    expect((await ask(nth(1))).status, 'from elsewhere').toBe(400)
    pass(seconds - 1)
    expect(waitOf(await ask(here))).toBe(1)
    pass(1)
    expect(new Set(statuses(await all()))).toEqual(new Set([400]))
    expect(waitOf(await ask(here))).toBe(seconds)
  })
})
