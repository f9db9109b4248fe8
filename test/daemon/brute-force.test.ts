import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { defaultLimits } from '../../src/core/limits.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import {
  addPerson,
  addTenant,
  admin,
  codeAt,
  enrolFactor,
  login,
  password,
  sameFor,
  signIn,
} from './people.ts'
import { type Reply, send } from './request.ts'

/** The limits as they are when nobody sets any. */
const documented = Object.fromEntries(
  Object.entries(defaultLimits).map(([name, { count, seconds }]) => [
    `RATE_LIMIT_${name}`,
    `${count}/${seconds}`,
  ]),
)
const behindProxy = { ...documented, TRUST_PROXY_HEADERS: 'true' }

const from = (address: string) => ({ 'x-service-client': 'cli', 'x-forwarded-for': address })
/** The nth address of an attacker who has many. */
const nth = (n: number) => `198.51.100.${n}`
const here = '203.0.113.7'

const count = (n: number) => Array.from({ length: n }, (_, i) => i + 1)
const statuses = (replies: readonly Reply<unknown>[]) => replies.map(({ status }) => status)

/** One after the other: the order decides who is refused. */
async function each<T>(items: readonly T[], ask: (item: T) => Promise<Reply<unknown>>) {
  const replies: Reply<unknown>[] = []
  for (const item of items) replies.push(await ask(item))
  return replies
}

/** What is said with a 429, which has to be the same in both places. */
function waitOf({ status, headers, body }: Reply<unknown>): number {
  const { code, retryAfter } = body as { code?: string; retryAfter?: number }
  expect([status, code, headers['retry-after']]).toEqual([429, 'rate_limited', String(retryAfter)])
  return retryAfter!
}

onEveryDatabase((_, open) => {
  /** Locks and codes go by the service's clock, limits by the process's. */
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

  describe('passwords tried from one address', () => {
    it('are ten in five minutes over all accounts, then 429; asking again does not make it longer', async () => {
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

    it('are five in five minutes for one account, whether or not there is one', async () => {
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

    it('are counted by that address, whatever the request says of itself, without a trusted proxy', async () => {
      const service = await start(documented)
      const names = ['x-forwarded-for', 'x-real-ip', 'cf-connecting-ip', 'true-client-ip', 'forwarded']
      const lies = (n: number) => Object.fromEntries(names.map((name) => [name, nth(n)]))
      const replies = await each(count(11), (n) =>
        login(service, { email: `person${n}@example.com`, password: 'a wrong password' }, lies(n)),
      )
      expect(statuses(replies)).toEqual([...count(10).map(() => 401), 429])
    })
  })

  describe('passwords tried from many addresses', () => {
    it('lock the account after five, for fifteen minutes, with nothing to tell it by', async () => {
      const service = await start()
      const { orgId } = await addTenant(service)
      const email = await addPerson(service, 'owner', { orgId }, 'Org Viewer')
      const wrong = await each(count(5), (n) => guess(service, email, nth(n)))
      expect(statuses(wrong)).toEqual([401, 401, 401, 401, 401])

      const right = (address: string) => guess(service, email, address, password)
      const others = [
        await right(nth(6)),
        await right(here),
        await guess(service, email, nth(7)),
        await guess(service, 'unknown@example.com', nth(8), password),
      ]
      for (const reply of [...wrong, ...others]) expect(sameFor(reply)).toEqual(sameFor(wrong[0]!))

      pass(15 * 60 - 1)
      // More of them than it takes to lock: they do not prolong it, and do not count for the next.
      await each(count(6), (n) => guess(service, email, nth(n + 10)))
      expect((await right(here)).status).toBe(401)
      pass(1)
      expect((await right(here)).status).toBe(200)
      expect((await login(service, admin, from(nth(1)))).status, 'nobody else is locked').toBe(200)
    })

    it('lock it also when they come at the same moment', async () => {
      const service = await start()
      const { orgId } = await addTenant(service)
      const email = await addPerson(service, 'owner', { orgId }, 'Org Viewer')
      const replies = await Promise.all(count(20).map((n) => guess(service, email, nth(n))))
      expect(statuses(replies)).toEqual(count(20).map(() => 401))
      expect((await guess(service, email, here, password)).status).toBe(401)
    })
  })

  it('codes are five in five minutes for one person, from however many addresses and sign-ins', async () => {
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
  ])('%s is open %d times in %d seconds to each address of its own', async (path, times, seconds) => {
    const service = await start()
    // Counted before the body is read: what is no good counts as well.
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
