import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { withoutKey } from '../lost-key.ts'
import { metricsToken, scrapedValues } from '../metric-values.ts'
import { addPerson, addTenant, codeAt, enrolFactor, password, post, signIn } from './people.ts'
import { send } from './request.ts'

/*
 * What becomes of encrypted values when their key is lost. Those of webhooks and providers: test/webhooks/poisoned, of mail:
 * test/messages/queue.
 */
inTurn((open) => {
  async function begin() {
    const clock = testClock()
    const service = await startService(open, { clock })
    const { orgId } = await addTenant(service)
    const email = await addPerson(service, 'grace', { orgId }, 'Org Admin')
    const { accessToken } = await signIn(service, { email, password })
    /** The service after the loss, and how many values of a column it could not decrypt. */
    const lost = async () => {
      await service.close()
      const again = await withoutKey(service, { clock, env: { METRICS_TOKEN: metricsToken } })
      const unreadable = async (column: string) =>
        (await scrapedValues(again.url, 'svc_unreadable_values_total'))[column]
      return { again, unreadable }
    }
    return { clock, service, orgId, email, accessToken, lost }
  }

  it('a second factor accepts no code; its recovery codes do, and it is replaced', async () => {
    const { clock, service, email, accessToken, lost } = await begin()
    const { secret, recoveryCodes } = await enrolFactor(service.client(accessToken), clock)
    const { again, unreadable } = await lost()
    clock.forward(60)
    const step = async (code: string) => {
      const { tempToken } = await again.client().call(api.auth.login, { body: { email, password } })
      return post(again, '/auth/mfa/verify', undefined, { tempToken, code })
    }
    expect(await step(codeAt(secret, clock))).toMatchObject({
      status: 401,
      body: { code: 'invalid_mfa_code' },
    })
    expect(await unreadable('users.totp_secret')).toBeGreaterThan(0)
    const { status, body } = await step(recoveryCodes[0]!)
    expect(status).toBe(200)
    const client = again.client(body.tokens!.accessToken)
    expect(await client.call(api.users.list, { query: {} })).toMatchObject({ data: expect.any(Array) })
    await client.call(api.auth.disableMfa, { body: { currentPassword: password, code: recoveryCodes[1]! } })
    const renewed = await signIn(again, { email, password })
    await enrolFactor(again.client(renewed.accessToken), clock)
  })

  it('a factor that is being set up is set up again', async () => {
    const { clock, service, email, accessToken, lost } = await begin()
    const { secret } = await service.client(accessToken).call(api.auth.setupMfa)
    const { again, unreadable } = await lost()
    const { accessToken: token } = await signIn(again, { email, password })
    const confirmed = await post(again, '/auth/mfa/enable', token, { code: codeAt(secret, clock) })
    expect(confirmed.status).toBe(400)
    expect(await unreadable('mfa_setups.content')).toBeGreaterThan(0)
    await enrolFactor(again.client(token), clock)
  })

  it('the reply that is kept for an Idempotency-Key: nothing is done twice, and the conflict says so', async () => {
    const { service, orgId, email, accessToken, lost } = await begin()
    const create = (url: string, token: string, key: string) =>
      send<{ code?: string; error?: string }>(url, 'POST', '/api/v1/orgs/sites', {
        token,
        body: { orgId, name: 'Oven' },
        headers: { 'idempotency-key': key },
      })
    expect((await create(service.url, accessToken, 'one')).status).toBe(201)
    const { again, unreadable } = await lost()
    const { accessToken: token } = await signIn(again, { email, password })
    expect(await create(again.url, token, 'one')).toMatchObject({
      status: 409,
      body: { code: 'conflict', error: expect.stringContaining('was done before') },
    })
    expect(await unreadable('idempotency_keys.reply')).toBeGreaterThan(0)
    expect((await again.client(token).call(api.sites.list, { query: {} })).data).toHaveLength(1)
    expect((await create(again.url, token, 'two')).status).toBe(201)
  })

  it('the link of a registration is no longer valid, and another one is sent', async () => {
    const clock = testClock()
    const mails: { links: readonly string[] }[] = []
    const mailer = { real: true, send: async (mail: { links: readonly string[] }) => void mails.push(mail) }
    const service = await startService(open, { clock, outside: { mailer } })
    const ada = { email: 'ada@example.com', password, name: 'Ada' }
    await post(service, '/auth/register', undefined, ada)
    await expect.poll(() => mails.length, { timeout: 5000 }).toBe(1)
    await service.close()
    const env = { METRICS_TOKEN: metricsToken }
    const again = await withoutKey(service, { clock, outside: { mailer }, env })
    const verify = (at: number) => {
      const token = new URL(mails[at]!.links[0]!).searchParams.get('token')
      return post(again, '/auth/verify-email', undefined, { token })
    }
    expect(await verify(0)).toMatchObject({ status: 400, body: { code: 'invalid_verification_link' } })
    const unreadable = await scrapedValues(again.url, 'svc_unreadable_values_total')
    expect(unreadable['registrations.content']).toBeGreaterThan(0)
    await post(again, '/auth/register', undefined, ada)
    await expect.poll(() => mails.length, { timeout: 5000 }).toBe(2)
    expect((await verify(1)).status).toBe(200)
  })
})
