import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { freeSlug, slugOf } from '../../src/identity/registration/rules.ts'
import type { MailMessage } from '../../src/messages/ports.ts'
import { audited, login, post } from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, startService } from '../harness.ts'
import { systemToken } from '../world.ts'
import { received } from './mailbox.ts'

const password = 'seven purple elephants on a roof'
const ada = { email: 'ada@example.com', password, name: 'Ada' }
const company = { ...ada, companyName: 'Müller & Söhne' }
const generic = {
  status: 200,
  body: {
    success: true,
    message: 'If registration can proceed, you will receive next steps shortly.',
  },
}

/** A mail server that accepts every mail and keeps it. */
const mailServer = () => {
  const mails: MailMessage[] = []
  return { mails, mailer: { real: true, send: async (mail: MailMessage) => void mails.push(mail) } }
}

inTurn((open) => {
  describe('the registration of a partner', () => {
    it('creates partner, organization, site and administrator, and the partner awaits approval', async () => {
      const service = await startService(open)
      const answer = await post(service, '/auth/register-partner', undefined, company)
      expect(answer).toMatchObject(generic)
      const client = service.client(await systemToken(service))
      const { data } = await client.call(api.partners.list, { query: {} })
      expect(data).toMatchObject([{ name: 'Müller & Söhne', slug: 'muller-sohne', status: 'pending' }])
      const orgs = await client.call(api.orgs.list)
      expect(orgs.data).toMatchObject([
        { slug: 'muller-sohne-org', partnerId: data[0]!.id, status: 'active' },
      ])
      const sites = await client.call(api.sites.list, { query: {} })
      expect(sites.data).toMatchObject([{ name: 'Main Office', orgId: orgs.data[0]!.id }])
      const [entry] = await audited(service, 'partner.register')
      expect(entry).toMatchObject({
        user: { email: ada.email },
        resource: { id: data[0]!.id, name: 'Müller & Söhne' },
      })

      const waiting = await login(service, { email: ada.email, password })
      const early = service.client(waiting.body.tokens!.accessToken)
      expect(await early.call(api.auth.me)).toMatchObject({ scope: 'partner' })
      expect(await early.call(api.auth.setupMfa)).toHaveProperty('secret')
      await expect(early.call(api.orgs.list)).rejects.toMatchObject({ status: 403, code: 'tenant_pending' })

      await service.storage.write((tx) => tx.updateTable('partners').set({ status: 'active' }).execute())
      const signedIn = await login(service, { email: ada.email, password })
      expect(signedIn).toMatchObject({ status: 200, body: { mfaEnrollmentRequired: true } })
      const mine = service.client(signedIn.body.tokens!.accessToken)
      expect(await mine.call(api.auth.me)).toMatchObject({ scope: 'partner', permissions: ['*:*'] })
      await expect(mine.call(api.orgs.list)).rejects.toMatchObject({ status: 428 })
    })

    it('gives companies of the same name different slugs', async () => {
      const service = await startService(open)
      for (const email of ['a@example.com', 'b@example.com', 'c@example.com'])
        await post(service, '/auth/register-partner', undefined, { ...company, email })
      const client = service.client(await systemToken(service))
      const { data } = await client.call(api.partners.list, { query: {} })
      expect(data.map(({ slug }) => slug).sort()).toEqual([
        'muller-sohne',
        'muller-sohne-2',
        'muller-sohne-3',
      ])
    })
  })

  describe('the registration of an account', () => {
    it('creates an account that belongs to no tenant until it is invited', async () => {
      const service = await startService(open)
      expect(await post(service, '/auth/register', undefined, ada)).toMatchObject(generic)
      expect((await received(service, ada.email, 'welcome')).text).toContain('ready')
      // It belongs to no tenant yet.
      expect((await login(service, { email: ada.email, password })).status).toBe(401)
    })

    it('gives the same answer for a taken address, and notifies only its owner', async () => {
      const service = await startService(open)
      const taken = { ...ada, email: adminEmail.toUpperCase() }
      expect(await post(service, '/auth/register', undefined, taken)).toMatchObject(generic)
      expect(
        await post(service, '/auth/register-partner', undefined, { ...company, ...taken }),
      ).toMatchObject(generic)
      expect((await received(service, adminEmail.toUpperCase(), 'already-registered')).text).toContain(
        'already',
      )
      expect((await login(service)).status).toBe(200)
      const users = await service.storage.read.selectFrom('users').select('email').execute()
      expect(users).toEqual([{ email: adminEmail }])
    })

    it('is refused where the service has as many as its quota allows, also when its link is opened', async () => {
      const { mails, mailer } = mailServer()
      const service = await startService(open, { outside: { mailer }, env: { QUOTA_PENDING_PARTNERS: '1' } })
      expect(await post(service, '/auth/register-partner', undefined, company)).toMatchObject(generic)
      await expect.poll(() => mails.length, { timeout: 5000 }).toBe(1)
      const token = new URL(mails[0]!.links[0]!).searchParams.get('token')
      const verify = () => post(service, '/auth/verify-email', undefined, { token })
      const other = { ...company, email: 'grace@example.com' }
      await post(service, '/auth/register-partner', undefined, other)
      await expect.poll(() => mails.length, { timeout: 5000 }).toBe(2)
      const second = new URL(mails[1]!.links[0]!).searchParams.get('token')
      expect(await post(service, '/auth/verify-email', undefined, { token: second })).toMatchObject({
        status: 200,
      })
      const full = { status: 403, body: { code: 'quota_exceeded', error: expect.not.stringMatching(/\d/) } }
      const refused = await post(service, '/auth/register-partner', undefined, {
        ...company,
        email: 'alan@example.com',
      })
      expect(refused).toMatchObject(full)
      expect(refused.body).not.toHaveProperty('details')
      expect(await verify()).toMatchObject(full)
      // Partners that an administrator creates are counted apart.
      const client = service.client(await systemToken(service))
      await client.call(api.partners.create, { body: { name: 'First', slug: 'first' } })
      const { data } = await client.call(api.partners.list, { query: {} })
      const waiting = data.find(({ status }) => status === 'pending')!
      await client.call(api.partners.update, { params: { id: waiting.id }, body: { status: 'active' } })
      // The link stays valid until there is room.
      expect(await verify()).toMatchObject({ status: 200 })
    })

    it('waits until the address is verified, when mail is sent', async () => {
      const { mails, mailer } = mailServer()
      const service = await startService(open, { outside: { mailer } })
      expect(await post(service, '/auth/register-partner', undefined, company)).toMatchObject(generic)
      const client = service.client(await systemToken(service))
      expect((await client.call(api.partners.list, { query: {} })).data).toEqual([])
      await expect.poll(() => mails.length, { timeout: 5000 }).toBe(1)
      expect(mails[0]).toMatchObject({ to: ada.email, kind: 'verify-email' })
      const token = new URL(mails[0]!.links[0]!).searchParams.get('token')

      const verify = () => post(service, '/auth/verify-email', undefined, { token })
      const answers = await Promise.all([verify(), verify(), verify()])
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400])
      expect((await client.call(api.partners.list, { query: {} })).data).toMatchObject([
        { status: 'pending' },
      ])
      expect(await verify()).toMatchObject({ body: { code: 'invalid_verification_link' } })
    })

    it('does not exist when it is disabled', async () => {
      const service = await startService(open, { env: { ENABLE_REGISTRATION: 'false' } })
      for (const [path, body] of [
        ['/auth/register', ada],
        ['/auth/register-partner', company],
      ] as const)
        expect((await post(service, path, undefined, body)).status).toBe(404)
    })

    it('is limited to five an hour per address, and three for partners', async () => {
      const env = { RATE_LIMIT_REGISTER: '5/3600', RATE_LIMIT_REGISTER_PARTNER: '3/3600' }
      const service = await startService(open, { env })
      const times = async (path: string, n: number) => {
        const statuses = new Set<number>()
        for (let i = 0; i < n; i += 1) statuses.add((await post(service, path, undefined, {})).status)
        return [...statuses]
      }
      expect(await times('/auth/register', 5)).toEqual([400])
      expect(await times('/auth/register', 1)).toEqual([429])
      expect(await times('/auth/register-partner', 3)).toEqual([400])
      expect(await times('/auth/register-partner', 1)).toEqual([429])
    })
  })
})

describe('a company slug', () => {
  it.each([
    ['Acme, Inc.', 'acme-inc'],
    ['  Ünïcode -- Straße  ', 'unicode-stra-e'],
    ['株式会社', 'partner'],
    ['x'.repeat(200), 'x'.repeat(80)],
  ])('of %s is %s', (name, slug) => expect(slugOf(name)).toBe(slug))

  it('is the first one that is free', () => {
    expect(freeSlug('acme', new Set(['acme-2']))).toBe('acme')
    expect(freeSlug('acme', new Set(['acme', 'acme-2']))).toBe('acme-3')
  })
})
