import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { addSeconds } from '../../../src/core/time.ts'
import { joinPartner } from '../../../src/identity/memberships.ts'
import { codeAt } from '../../daemon/people.ts'
import { onEveryDatabase } from '../../databases.ts'
import { addUser, roleOf, tokenFor } from '../../world.ts'
import { addMember, codeIn, person, start } from './sign-in-fixture.ts'

onEveryDatabase((_kind, open) => {
  /** The member Dora, who signs in with the provider, by default has a password too. */
  async function setUp({ hasPassword = true } = {}) {
    const on = await start(open)
    const { service, bakery, clock } = on
    const { id: providerId } = await on.provider()
    const userId = await addMember(service, bakery.id, person.email)
    if (!hasPassword)
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ password_hash: null }).where('id', '=', userId).execute(),
      )
    const enter = async (who: object = person) => {
      const { location } = await on.signIn({ ...person, ...who })
      return service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
    }
    /** The stored session of a token. */
    const kept = async (token: string | undefined) => {
      const { sid } = JSON.parse(Buffer.from(token!.split('.')[1]!, 'base64url').toString()) as {
        sid: string
      }
      const row = service.storage.read.selectFrom('sessions').selectAll().where('id', '=', sid)
      return row.executeTakeFirstOrThrow()
    }
    /** A client with a password session. */
    const byPassword = async () => {
      const context = { kind: 'organization', orgId: bakery.id } as const
      return service.client(await tokenFor(service, userId, context, { mfa: true, now: new Date(clock()) }))
    }
    const enrol = async (client = service.client()) => {
      const { secret } = await client.call(api.auth.setupMfa, { body: {} })
      const enabled = await client.call(api.auth.enableMfa, { body: { code: codeAt(secret, clock) } })
      return { secret, ...enabled }
    }
    return { ...on, providerId, userId, enter, kept, byPassword, enrol }
  }

  describe('a session of single sign-on', () => {
    it('cannot change the factors of an account with a password, even with a second factor', async () => {
      const { service, enter, enrol, byPassword } = await setUp()
      const forbidden = { status: 403, code: 'forbidden' }
      const by = async () => service.client((await enter({ amr: ['pwd', 'mfa'] })).accessToken)
      const phone = { phoneNumber: '+4915100000001' }
      const first = await by()
      await expect(first.call(api.auth.setupMfa, { body: {} })).rejects.toMatchObject(forbidden)
      await expect(first.call(api.auth.verifyPhone, { body: phone })).rejects.toMatchObject(forbidden)
      const confirm = first.call(api.auth.confirmPhone, { body: { ...phone, code: '123456' } })
      await expect(confirm).rejects.toMatchObject(forbidden)
      const { recoveryCodes } = await enrol(await byPassword())
      const client = await by()
      expect(await client.call(api.auth.me)).toMatchObject({ mfaVerified: true })
      await expect(client.call(api.auth.newRecoveryCodes, { body: {} })).rejects.toMatchObject(forbidden)
      const [code] = recoveryCodes
      const disable = client.call(api.auth.disableMfa, { body: { code: code! } })
      await expect(disable).rejects.toMatchObject(forbidden)
    })

    it('enrolls a factor in an account without a password, and keeps its provider and expiry', async () => {
      const { service, clock, providerId, bakery, enter, enrol, kept } = await setUp({ hasPassword: false })
      const began = clock()
      const { accessToken } = await enter()
      clock.forward(600)
      const { tokens } = await enrol(service.client(accessToken))
      const session = { sso_provider_id: providerId, expires_at: addSeconds(began, 24 * 3600), mfa: 1 }
      expect(await kept(tokens.accessToken)).toMatchObject(session)
      const as = service.client(tokens.accessToken)
      await expect(as.call(api.auth.switch, { body: { orgId: bakery.id } })).rejects.toMatchObject({
        status: 403,
        code: 'forbidden',
      })
    })

    it('enrolls a factor where single sign-on is enforced, as the password opens nothing', async () => {
      const { service, system, providerId, enter, enrol } = await setUp()
      const body = { enforceSSO: true, force: true }
      await system.call(api.ssoProviders.update, { params: { id: providerId }, body })
      const { accessToken } = await enter()
      expect(await enrol(service.client(accessToken))).toMatchObject({ success: true })
    })

    it('is replaced by one with the same expiry after a step-up with an authenticator code', async () => {
      const { service, clock, providerId, enter, enrol, byPassword, kept } = await setUp()
      const { secret } = await enrol(await byPassword())
      clock.forward(60)
      const began = clock()
      const refresh = async (refreshToken: string) =>
        (await service.client().call(api.auth.refresh, { body: { refreshToken } })).tokens
      const { refreshToken: entered } = await enter()
      clock.forward(23 * 3600)
      const first = service.client((await refresh(entered)).accessToken)
      expect(await first.call(api.auth.me)).toMatchObject({ mfaVerified: false })
      const { tokens } = await first.call(api.auth.verifyMfa, { body: { code: codeAt(secret, clock) } })
      const until = addSeconds(began, 24 * 3600)
      const session = { sso_provider_id: providerId, expires_at: until, mfa: 1 }
      expect(await kept(tokens?.accessToken)).toMatchObject(session)
      await expect(first.call(api.auth.me)).rejects.toMatchObject({ status: 401 })
      const renewed = await refresh(tokens!.refreshToken!)
      expect(await kept(renewed.accessToken)).toMatchObject(session)
      expect(await service.client(renewed.accessToken).call(api.auth.me)).toMatchObject({ mfaVerified: true })
      clock.forward(3600)
      await expect(refresh(renewed.refreshToken!)).rejects.toMatchObject({ status: 401 })
    })

    it('ends with its provider, together with the codes that wait for an exchange', async () => {
      const { service, client, providerId, enter, signIn, change } = await setUp()
      const waiting = codeIn((await signIn()).location)
      await change(providerId, {
        issuer: 'https://other.example.com',
        jwksUrl: 'https://other.example.com/keys',
        authorizationUrl: 'https://other.example.com/a',
        tokenUrl: 'https://other.example.com/t',
        userInfoUrl: 'https://other.example.com/u',
        clientSecret: 'of the other',
      })
      const exchange = service.client().call(api.ssoSignIn.exchange, { body: { code: waiting } })
      await expect(exchange).rejects.toMatchObject({ status: 400, code: 'invalid_exchange_code' })
      await change(providerId, { issuer: 'https://idp.example.com', clientSecret: 'hush' })
      const { accessToken, refreshToken } = await enter()
      await client.call(api.ssoProviders.remove, { params: { id: providerId } })
      const as = service.client(accessToken)
      await expect(as.call(api.auth.me)).rejects.toMatchObject({ status: 401 })
      const refresh = service.client().call(api.auth.refresh, { body: { refreshToken } })
      await expect(refresh).rejects.toMatchObject({ status: 401 })
    })

    it('has a second factor only if the ID token says so', async () => {
      const { service, idp, enter } = await setUp()
      const verified = async (who: object) =>
        (await service.client((await enter(who)).accessToken).call(api.auth.me)).mfaVerified
      expect(await verified({ amr: 'mfa' })).toBe(true)
      expect(await verified({ amr: ['otp', 'pwd'] })).toBe(false)
      expect(await verified({ amr: [['mfa']] })).toBe(false)
      // User info describes the user, not the authentication.
      idp.userInfo = { ...person, amr: ['mfa'] }
      expect(await verified({})).toBe(false)
    })
  })

  describe('a user of a partner', () => {
    it('can use the provider of an organization only as a member of that organization', async () => {
      const { service, world, signIn } = await setUp()
      const { acme } = world.partners
      const userId = await addUser(service, 'pat')
      const roleId = roleOf('Partner Admin', 'partner')
      await service.storage.write((tx) =>
        joinPartner(tx, { partnerId: acme, userId, roleId, orgs: 'all' }, '2026-03-01T12:00:00.000Z'),
      )
      const { location } = await signIn({ ...person, sub: 'pat', email: 'pat@example.com' })
      expect(location).toContain('error=no_org_access')
    })
  })
})
