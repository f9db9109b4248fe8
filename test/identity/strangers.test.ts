import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { findUserByEmail, insertUser } from '../../src/identity/store.ts'
import type { Db } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { codeIn, start } from '../sso/sign-in/sign-in-fixture.ts'
import { roleOf } from '../world.ts'
import { lettersOf, unsent } from './mail.ts'

/* What a tenant, its identity provider or its members can do to a user it only invited or asserts. */

const password = 'nine quiet herons over the weir'
const email = 'ada@example.com'
const viewer = roleOf('Org Viewer', 'organization')
const ofSso = { sub: 'ada-at-bakery', email, name: 'Mallory' }

inTurn((open) => {
  let stage: Awaited<ReturnType<typeof start>>
  const begin = async (env: Record<string, string> = {}) => {
    stage = await start(open, { ENABLE_REGISTRATION: 'true', ...env }, { mailer: unsent(false) })
  }
  beforeEach(() => begin())

  const as = (token?: string) => stage.service.client(token)
  const write = <T>(work: (tx: Db) => Promise<T>) => stage.service.storage.write(work)
  const login = (more: object = {}, secret = password) =>
    as().call(api.auth.login, { body: { email, password: secret, ...more } })
  const tokenOf = (reply: { tokens: { accessToken: string } | null }) => reply.tokens!.accessToken
  const ada = async () => (await findUserByEmail(stage.service.storage.read, email))!
  const invite = (token: string, more: object = {}) =>
    as(token).call(api.users.invite, { body: { email, name: 'Ada', roleId: viewer, ...more } })
  const forbidden = expect.objectContaining({ status: 403, code: 'forbidden' })

  /** An account with a password and a proved address, which belongs to the given organizations. */
  async function account(...orgIds: string[]): Promise<string> {
    const id = newId()
    const passwordHash = await hashPassword(password)
    const now = stage.clock()
    await write(async (tx) => {
      await insertUser(tx, { id, email, name: 'Ada Lovelace', passwordHash, emailProvedAt: now }, now)
      for (const orgId of orgIds)
        await joinOrganization(tx, { orgId, userId: id, roleId: viewer, siteIds: null }, now)
    })
    return id
  }

  /** The access token that the provider of bakery obtains by asserting an address. */
  async function bySso(who: object = ofSso): Promise<string> {
    const { location } = await stage.signIn({ ...who })
    const code = codeIn(location)
    return (await as().call(api.ssoSignIn.exchange, { body: { code } })).accessToken
  }

  const waitForMail = async (kind: string) => {
    await expect
      .poll(async () => (await lettersOf(stage.service)).at(-1)?.kind, { timeout: 10_000 })
      .toBe(kind)
    return (await lettersOf(stage.service)).at(-1)!
  }

  describe('an organization that invited a user', () => {
    it('learns nothing of what the user does before accepting', async () => {
      await account()
      await invite(stage.world.tokens.harbor)
      const before = await stage.service.storage.read.selectFrom('events').select('id').execute()
      await expect(login({}, 'wrong')).rejects.toMatchObject({ status: 401 })
      const me = as(tokenOf(await login()))
      await expect(me.call(api.devices.list)).rejects.toMatchObject({ code: 'invitation_pending' })
      await me.call(api.users.changeMe, { body: { name: 'Countess' } })
      await me.call(api.auth.setupMfa)
      const switched = as(tokenOf(await me.call(api.auth.switch, { body: {} })))
      await switched.call(api.auth.logout)
      await write((tx) => tx.updateTable('users').set({ mfa_method: 'totp' }).execute())
      const { tempToken } = await login()
      const code = as().call(api.auth.verifyMfa, { body: { tempToken: tempToken!, code: 'AAAA-BBBB' } })
      await expect(code).rejects.toMatchObject({ status: 401 })

      const { data } = await as(stage.world.tokens.harbor).call(api.auditLogs.list, { query: { limit: 50 } })
      expect(data.map(({ action }) => action)).toContain('user.invite')
      expect(data.filter(({ user }) => user.email === email)).toEqual([])
      const after = await stage.service.storage.read.selectFrom('events').select('id').execute()
      expect(after).toEqual(before)
    })

    it('does not learn which tenant a user switches to or comes from', async () => {
      const { garage } = stage.world.orgs
      const userId = await account(garage.id)
      const partnerId = stage.world.partners.globex
      const roleId = roleOf('Partner Viewer', 'partner')
      await write((tx) => joinPartner(tx, { partnerId, userId, roleId, orgs: 'all' }, stage.clock()))
      const me = as(tokenOf(await login({ orgId: garage.id })))
      await me.call(api.auth.switch, { body: { partnerId } })
      const { data } = await as(stage.world.tokens.garage).call(api.auditLogs.list, { query: { limit: 50 } })
      expect(data.map(({ action }) => action)).not.toContain('auth.switch')
      expect(JSON.stringify(data.filter(({ user }) => user.email === email))).not.toContain(partnerId)
    })

    it('learns no name and no factor of the user from explain', async () => {
      const id = await account(stage.world.orgs.garage.id)
      await invite(stage.world.tokens.harbor, { name: 'Typed' })
      const query = { userId: id, method: 'GET' as const, path: '/devices' }
      const explained = await as(stage.world.tokens.harbor).call(api.permissions.explain, { query })
      expect(explained).toMatchObject({
        code: 'invitation_pending',
        subject: { userName: 'Typed', mfa: true },
      })
      const mine = await as(stage.world.tokens.garage).call(api.permissions.explain, { query })
      expect(mine).toMatchObject({ allowed: true, subject: { userName: 'Ada Lovelace', mfa: false } })
    })

    it('sends its mail to the proved address, however another tenant typed it first', async () => {
      const { email: spelled } = await invite(stage.world.tokens.harbor, {
        email: '\u24d0da@ex\uff41mple.com',
      })
      expect(spelled).toBe('\u24d0da@ex\uff41mple.com')
      await invite(stage.world.tokens.bakery)
      expect((await lettersOf(stage.service)).map(({ to }) => to)).toEqual([email, email])
    })
  })

  describe('an identity provider that asserts a user who has a password', () => {
    beforeEach(() => stage.provider())

    it('does not control an account that belongs to no other tenant', async () => {
      const id = await account()
      await write((tx) =>
        tx
          .updateTable('users')
          .set({ phone_number: '+15550001111', phone_verified: 1, failed_logins: 4 })
          .where('id', '=', id)
          .execute(),
      )
      await invite(stage.world.tokens.bakery)
      const sso = as(await bySso({ ...ofSso, amr: ['mfa'] }))
      expect((await sso.call(api.auth.me)).user.phoneLast4).toBeNull()
      const refused = [
        sso.call(api.users.changeMe, { body: { name: 'Mallory' } }),
        sso.call(api.auth.setupMfa),
        sso.call(api.auth.verifyPhone, { body: { phoneNumber: '+15550002222' } }),
      ]
      for (const one of await Promise.allSettled(refused))
        expect(one).toMatchObject({ status: 'rejected', reason: forbidden })
      const seen = await as(stage.world.tokens.bakery).call(api.users.show, { params: { id } })
      expect(seen).toMatchObject({ name: 'Ada', phoneNumber: null, mfaEnabled: null })
      const reset = as(stage.world.tokens.bakery).call(api.users.resetMfa, { params: { id } })
      await expect(reset).rejects.toEqual(forbidden)
      // Nor does it reset the failed sign-ins that guard the password.
      expect(await ada()).toMatchObject({ failedLogins: 4, lastLoginAt: null })
    })

    it('does not keep the user from proving the address for another tenant', async () => {
      await as().call(api.auth.register, { body: { email, password, name: 'Ada' } })
      await invite(stage.world.tokens.bakery)
      await bySso()
      await invite(stage.world.tokens.harbor)
      await as().call(api.auth.forgotPassword, { body: { email } })
      const { links } = await waitForMail('password-reset')
      const token = new URL(links[0]!).searchParams.get('token')!
      await as().call(api.auth.resetPassword, { body: { token, password: `${password} again` } })
      const { id: orgId } = stage.world.orgs.harbor
      const me = as(tokenOf(await login({}, `${password} again`)))
      await me.call(api.users.acceptMine, { body: { orgId } })
    })

    it('does not block the password reset of a user whom another tenant activated', async () => {
      const { id } = await invite(stage.world.tokens.harbor)
      const change = { params: { id }, body: { status: 'active' as const } }
      await as(stage.world.tokens.harbor).call(api.users.change, change)
      await invite(stage.world.tokens.bakery)
      await bySso()
      await as().call(api.auth.forgotPassword, { body: { email } })
      await waitForMail('password-reset')
    })

    it('does not restrict the second factors of the user', async () => {
      await account(stage.world.orgs.harbor.id)
      await invite(stage.world.tokens.bakery)
      await bySso()
      const settings = { security: { requireMfa: true, allowedMfaMethods: { sms: false } } }
      const strict = { settings: JSON.stringify(settings) }
      await write((tx) =>
        tx.updateTable('organizations').set(strict).where('id', '=', stage.bakery.id).execute(),
      )
      const set = { phone_number: '+15550001111', phone_verified: 1 }
      await write((tx) => tx.updateTable('users').set(set).where('email', '=', email).execute())
      const me = as(tokenOf(await login()))
      expect((await me.call(api.auth.enableSms)).success).toBe(true)
    })

    it('does not consume the rate limits of the user', async () => {
      await begin({ RATE_LIMIT_MFA: '2/300', RATE_LIMIT_BEARER: '150/60' })
      await stage.provider()
      const { harbor } = stage.world.orgs
      const id = await account(harbor.id)
      await invite(stage.world.tokens.bakery)
      const own = tokenOf(await login())
      const sso = as(await bySso())
      await write((tx) => tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', id).execute())
      const guess = () => sso.call(api.auth.verifyMfa, { body: { code: 'AAAA-BBBB' } }).catch((e) => e.status)
      for (let n = 0; n < 150; n++) await guess()
      expect(await guess()).toBe(429)
      await as(own).call(api.auth.me)
      const { tempToken } = await login()
      const code = as().call(api.auth.verifyMfa, { body: { tempToken: tempToken!, code: 'AAAA-BBBB' } })
      await expect(code).rejects.toMatchObject({ status: 401 })
    })
  })

  describe('what was set up in an account before its address was proved', () => {
    it('is removed by the proof: a phone number and a pending authenticator setup', async () => {
      await stage.provider()
      await invite(stage.world.tokens.bakery)
      const sso = as(await bySso())
      await sso.call(api.auth.setupMfa)
      const { id } = await ada()
      const set = { phone_number: '+15550001111', phone_verified: 1 }
      await write((tx) => tx.updateTable('users').set(set).where('id', '=', id).execute())
      await invite(stage.world.tokens.harbor)
      const { links } = await waitForMail('invitation')
      const token = new URL(links[0]!).searchParams.get('token')!
      const mine = await as().call(api.auth.acceptInvite, { body: { token, password } })
      expect(mine.user).toMatchObject({ mfaEnabled: false })
      expect(await ada()).toMatchObject({ phoneNumber: null, phoneVerified: false })
      await as(tokenOf(mine)).call(api.auth.me)
      const added = as(await bySso()).call(api.auth.enableMfa, { body: { code: '123456' } })
      await expect(added).rejects.toMatchObject({ status: 400 })
      expect(await stage.service.storage.read.selectFrom('mfa_setups').selectAll().execute()).toEqual([])
    })

    it('cannot be completed by the provider once another tenant has the user as a member', async () => {
      await stage.provider()
      await invite(stage.world.tokens.bakery)
      const sso = as(await bySso())
      await sso.call(api.auth.setupMfa)
      const { id: userId } = await ada()
      const { id: orgId } = stage.world.orgs.harbor
      await write((tx) =>
        joinOrganization(tx, { orgId, userId, roleId: viewer, siteIds: null }, stage.clock()),
      )
      const added = sso.call(api.auth.enableMfa, { body: { code: '123456' } })
      await expect(added).rejects.toEqual(forbidden)
    })
  })
})
