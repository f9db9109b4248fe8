import pg from 'pg'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { defaultLimits, type LimitName, type SharedLimit } from '../../src/core/limits.ts'
import { systemClock } from '../../src/core/time.ts'
import { currentFairShareKey } from '../../src/storage/fair-queue.ts'
import { onEveryDatabase, openMigrated } from '../databases.ts'
import { serviceOn, startService, type TestService } from '../harness.ts'
import { received } from '../identity/mailbox.ts'
import { failWrites } from '../laws/failing-writes.ts'
import { productSources } from '../laws/imports.ts'
import { buildWorld } from '../world.ts'
import { addPerson, addTenant, enrolFactor, login, password, post, signIn } from './people.ts'
import { ServeProcess, serviceEnv } from './process.ts'
import { machine, send } from './request.ts'

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const phoneNumber = '+4915112345678'

type Attempt = (service: TestService, n: number) => Promise<{ status: number }>

const enroll = (url: string) =>
  send(url, 'POST', '/api/v1/agents/enroll', { body: machine('f'.repeat(64), 'pc') })

/** Prepares attempts that a limit counts, on a service without limits. */
const attempts: Partial<Record<SharedLimit, (service: TestService) => Promise<Attempt>>> = {
  LOGIN_IP: async () => (one, n) => login(one, { email: `person${n}@example.com`, password: 'wrong' }),
  LOGIN_ACCOUNT: async () => (one) => login(one, { email: 'somebody@example.com', password: 'wrong' }),
  async MFA(service) {
    const email = await addPerson(service, 'ada', await addTenant(service), 'Org Viewer')
    const { accessToken } = await signIn(service, { email, password })
    await enrolFactor(service.client(accessToken), systemClock)
    const { tempToken } = (await login(service, { email, password })).body as { tempToken: string }
    return (one) => post(one, '/auth/mfa/verify', undefined, { tempToken, code: '0000' })
  },
  async SMS_PHONE(service) {
    const email = await addPerson(service, 'ada', await addTenant(service), 'Org Viewer')
    const { accessToken } = await signIn(service, { email, password })
    await post(service, '/auth/phone/verify', accessToken, { phoneNumber })
    const code = /\d{6}/.exec((await received(service, phoneNumber, 'sms-code')).text)?.[0]
    await post(service, '/auth/phone/confirm', accessToken, { phoneNumber, code })
    await post(service, '/auth/mfa/sms/enable', accessToken)
    const { tempToken } = (await login(service, { email, password })).body as { tempToken: string }
    return (one) => post(one, '/auth/mfa/sms/send', undefined, { tempToken })
  },
  FORGOT: async () => (one, n) =>
    post(one, '/auth/forgot-password', undefined, { email: `person${n}@example.com` }),
  REGISTER: async () => (one, n) =>
    post(one, '/auth/register', undefined, { email: `person${n}@example.com`, name: 'P', password }),
  INVITE_PREVIEW: async () => (one) => post(one, '/auth/invite/preview', undefined, { token: 'unknown' }),
  ENROLL_IP: async () => (one) => enroll(one.url),
  AGENT_PROOF: async () => (one) => {
    const proof = { challenge: 'a.b.c', serviceKey: `${'A'.repeat(43)}=`, signature: `${'A'.repeat(86)}==` }
    return post(one, `/agents/${'a'.repeat(64)}/recover-token`, undefined, proof)
  },
}

onEveryDatabase((_, open) => {
  describe('a limit that all processes count together', () => {
    it.each(Object.keys(attempts) as SharedLimit[])(
      'holds for requests to two services, and after a restart: %s',
      async (name) => {
        const database = await open()
        const first = await startService(async () => database)
        const attempt = await attempts[name]!(first)
        await first.close()
        const env = { [`RATE_LIMIT_${name}`]: '4/3600' }
        const two = [await serviceOn(database, { env }), await serviceOn(database, { env })]
        const replies = await Promise.all(numbers(9).map((n) => attempt(two[n % 2]!, n)))
        const admitted = replies.filter(({ status }) => status !== 429)
        expect(admitted).toHaveLength(4)
        // They were refused for what they are, if at all, and not for another limit.
        expect(new Set(admitted.map(({ status }) => status)).size).toBe(1)
        expect([200, 401, 404]).toContain(admitted[0]!.status)
        for (const one of two) await one.close()
        const restarted = await serviceOn(database, { env })
        expect((await attempt(restarted, 9)).status).toBe(429)
      },
    )

    it('gives nothing back to those who have the process killed', async () => {
      const { dataDir, databaseUrl } = await open()
      const env = { ...serviceEnv, RATE_LIMIT_ENROLL_IP: '4/3600' }
      const place = { dataDir, databaseUrl }
      const admitted = async (url: string, times: number) =>
        (await Promise.allSettled(numbers(times).map(() => enroll(url)))).flatMap((one) =>
          one.status === 'fulfilled' && one.value.status === 401 ? [one] : [],
        ).length
      const first = new ServeProcess(place, { env })
      let total = await admitted(await first.listening(), 2)
      expect(total).toBe(2)
      first.kill('SIGKILL')
      await first.ended
      const second = new ServeProcess(place, { env })
      const begun = admitted(await second.listening(), 10)
      second.kill('SIGKILL')
      await second.ended
      total += await begun
      const third = new ServeProcess(place, { env })
      const url = await third.listening()
      total += await admitted(url, 10)
      expect(total).toBeLessThanOrEqual(4)
      expect((await enroll(url)).status).toBe(429)
      await third.stop()
    })

    it('counts an attempt whose own transaction fails', async () => {
      const service = await startService(open, { env: { RATE_LIMIT_LETTER: '2/3600' } })
      const cure = await failWrites(service.storage, 'insert', 'password_reset_requests', `new.id <> ''`)
      const forgot = () => post(service, '/auth/forgot-password', undefined, { email: 'ada@example.com' })
      expect([(await forgot()).status, (await forgot()).status]).toEqual([500, 500])
      await cure()
      expect((await forgot()).status).toBe(429)
    })

    it('costs no write of a signed-in request, of a heartbeat, and of an attempt beyond the limit', async () => {
      const documented = Object.entries(defaultLimits).map(([name, { count, seconds }]) => [
        `RATE_LIMIT_${name}`,
        `${count}/${seconds}`,
      ])
      const service = await startService(open, { env: Object.fromEntries(documented) })
      const { orgs, tokens } = await buildWorld(service)
      const { agentId, agentToken } = orgs.bakery
      const read = async () => {
        const { status } = await send(service.url, 'GET', '/api/v1/orgs/sites', { token: tokens.bakery })
        expect(status).toBe(200)
      }
      const beat = async () => {
        const path = `/api/v1/agents/${agentId}/heartbeat`
        const body = { status: 'ok', agentVersion: '1' }
        expect((await send(service.url, 'POST', path, { token: agentToken, body })).status).toBe(200)
      }
      const { storage } = service
      const windows = () => storage.read.selectFrom('rate_limit_windows').selectAll().execute()
      await beat()
      while ((await enroll(service.url)).status !== 429);
      const before = await windows()
      expect(before).not.toEqual([])
      const { write } = storage
      const writers: string[] = []
      // The background works for the service itself.
      const spy = vi.spyOn(storage, 'write').mockImplementation((work, options) => {
        if (currentFairShareKey()[0] !== 'service') writers.push(currentFairShareKey().join())
        return write(work, options)
      })
      for (const _ of numbers(5)) await read()
      for (const _ of numbers(50)) expect((await enroll(service.url)).status).toBe(429)
      expect(writers).toEqual([])
      for (const _ of numbers(5)) await beat()
      expect(writers, 'the heartbeats themselves').toHaveLength(5)
      expect(await windows()).toEqual(before)
      await login(service, { email: 'ada@example.com', password: 'wrong' })
      expect(writers.slice(5), 'a limit is seen here').toContain('admission,127.0.0.1')
      spy.mockRestore()
    })

    it('stores neither addresses nor mail addresses', async () => {
      const env = {
        TRUST_PROXY_HEADERS: 'true',
        RATE_LIMIT_LOGIN_IP: '9/900',
        RATE_LIMIT_LOGIN_ACCOUNT: '9/900',
      }
      const service = await startService(open, { env })
      const from = { 'x-forwarded-for': '198.51.100.77' }
      await login(service, { email: 'ada@example.com', password: 'wrong' }, from)
      const rows = await service.storage.read.selectFrom('rate_limit_windows').selectAll().execute()
      expect(rows.map(({ id }) => id.split(' ')[0]).sort()).toEqual(['LOGIN_ACCOUNT', 'LOGIN_IP'])
      for (const { id } of rows) expect(id).toMatch(/^[A-Z_]+ [0-9a-f]{5}$/)
    })
  })
})

/** On SQLite writes run one at a time: there are no locked rows. */
it('a window that another session keeps locked delays only those who are counted in it, and none of them for long', async () => {
  const env = { TRUST_PROXY_HEADERS: 'true', RATE_LIMIT_LOGIN_IP: '50/3600' }
  const service = await startService(() => openMigrated('postgres'), { env })
  const guess = async (address: string) => {
    const from = { 'x-forwarded-for': address }
    return (await login(service, { email: 'ada@example.com', password: 'wrong' }, from)).status
  }
  expect(await guess('198.51.100.1')).toBe(401)
  const other = new pg.Client({ connectionString: service.databaseUrl! })
  await other.connect()
  onTestFinished(() => other.end())
  await other.query('begin')
  expect((await other.query('select 1 from rate_limit_windows for update')).rowCount).toBe(1)
  const locked = Promise.all(numbers(20).map(() => guess('198.51.100.1')))
  expect(new Set(await Promise.all(numbers(20).map((n) => guess(`203.0.113.${n}`))))).toEqual(new Set([401]))
  // All of them are answered while the row is still locked.
  expect(new Set(await locked)).toEqual(new Set([503]))
  await other.query('rollback')
  expect(await guess('198.51.100.1')).toBe(401)
})

it('a handler waits until an event of such a limit is counted', () => {
  const names = (Object.keys(defaultLimits) as LimitName[]).filter(
    (name) => defaultLimits[name].counted === 'shared',
  )
  const calls = productSources().flatMap(({ path, text }) =>
    [...text.matchAll(/^.*\blimit\(\s*'([A-Z_]+)'.*$/gm)].map(([line, name]) => ({ path, line, name })),
  )
  const counting = calls.filter(({ name }) => (names as string[]).includes(name!))
  expect(counting.length).toBeGreaterThan(15)
  expect(counting.filter(({ line }) => !/^\s*await (call\.)?limit\(/.test(line))).toEqual([])
})
