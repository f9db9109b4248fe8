import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { acceptMembership, joinOrganization } from '../../src/identity/memberships.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import type { SessionContext } from '../../src/identity/rules.ts'
import { insertSession } from '../../src/identity/sessions/store.ts'
import { createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import { findUserByEmail, insertUser, markEmailProved } from '../../src/identity/store.ts'
import { audited, codeAt, enrolFactor } from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestClock, type TestService, testClock, testSecrets } from '../harness.ts'
import { addProvider, buildWorld, roleOf, type World } from '../world.ts'
import { lettersOf, unsent } from './mail.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })
const password = 'nine quiet herons over the weir'
const email = 'ada@example.com'
const viewer = roleOf('Org Viewer', 'organization')
const admin = roleOf('Org Admin', 'organization')

inTurn((open) => {
  let service: TestService
  let world: World
  let clock: TestClock

  beforeEach(async () => {
    clock = testClock(new Date().toISOString())
    const env = { ENABLE_REGISTRATION: 'true' }
    service = await startService(open, { clock, env, outside: { mailer: unsent(false) } })
    world = await buildWorld(service)
  })

  const as = (token?: string) => service.client(token)
  const invite = (token: string, more: object = {}) =>
    as(token).call(api.users.invite, { body: { email, name: 'Ada', roleId: viewer, ...more } })
  const linkOf = (url = '') => new URL(url).searchParams.get('token') ?? ''
  const accept = (token: string, secret = password) =>
    as().call(api.auth.acceptInvite, { body: { token, password: secret } })
  const login = (more: object = {}, secret = password) =>
    as().call(api.auth.login, { body: { email, password: secret, ...more } })
  const ada = async () => (await findUserByEmail(service.storage.read, email))!
  const proved = async () => {
    const { id } = await ada()
    await service.storage.write((tx) => markEmailProved(tx, id, clock()))
  }
  const acceptMine = (token: string, body: { orgId: string }) =>
    as(token).call(api.users.acceptMine, { body })
  const tokenOf = (reply: { tokens: { accessToken: string } | null }) => reply.tokens!.accessToken

  /** An account of bakery with a password and a proved address. */
  async function member(orgId = world.orgs.bakery.id): Promise<string> {
    const id = newId()
    const passwordHash = await hashPassword(password)
    await service.storage.write(async (tx) => {
      await insertUser(tx, { id, email, name: 'Ada Lovelace', passwordHash, emailProvedAt: clock() }, clock())
      await joinOrganization(tx, { orgId, userId: id, roleId: viewer, siteIds: null }, clock())
    })
    return id
  }

  /** A session of single sign-on, as the exchange of a code creates it. */
  async function bySso(userId: string, orgId: string, mfa = false): Promise<string> {
    const vouches = JSON.stringify(['*:*'])
    const providerId = await addProvider(service, orgId, { status: 'active' })
    const row = await ada()
    const id = newId()
    const context: SessionContext = { kind: 'organization', orgId }
    const session = { id, userId, context, mfa, tokenHash: id, ssoProviderId: providerId }
    const { authEpoch, mfaEpoch } = row
    await service.storage.write(async (tx) => {
      await tx.updateTable('sso_providers').set({ vouches }).where('id', '=', providerId).execute()
      await insertSession(tx, { ...session, expiresAt: '9999-01-01T00:00:00.000Z' }, clock())
    })
    const claims = { userId, sessionId: id, context, authEpoch, mfaEpoch, mfa }
    return createAccessTokens(testSecrets.JWT_SECRET).sign(claims, new Date(clock()))
  }

  describe('an invitation link', () => {
    it('opens no membership of a tenant that invites the same address later', async () => {
      const first = await invite(world.tokens.bakery)
      const second = await invite(world.tokens.harbor, { roleId: admin })
      expect(second).toMatchObject({ status: 'invited', name: 'Ada' })
      expect(second.inviteUrl).toBeUndefined()
      await expect(accept(linkOf(first.inviteUrl))).rejects.toMatchObject({ status: 400 })
      // The mailed link of the second invitation opens only that one.
      const token = tokenOf(await accept(linkOf((await lettersOf(service)).at(-1)!.links[0])))
      expect(await as(token).call(api.users.me)).toMatchObject({ orgId: world.orgs.harbor.id })
      await expect(login({ orgId: world.orgs.bakery.id })).rejects.toEqual(
        failing(401, 'invalid_credentials'),
      )
      expect(await acceptMine(token, { orgId: world.orgs.bakery.id })).toEqual({ success: true })
      await login({ orgId: world.orgs.bakery.id })
    })

    it('seen by its inviter, like an unproved registration, opens nothing of another tenant', async () => {
      await accept(linkOf((await invite(world.tokens.bakery)).inviteUrl))
      await invite(world.tokens.harbor, { roleId: admin })
      const { id: orgId } = world.orgs.harbor
      await expect(login({ orgId })).rejects.toEqual(failing(401, 'invalid_credentials'))
      const token = tokenOf(await login())
      await expect(acceptMine(token, { orgId })).rejects.toEqual(failing(403, 'email_unproved'))
      await expect(as(token).call(api.auth.switch, { body: { orgId } })).rejects.toMatchObject({
        status: 403,
      })

      const registered = { email: 'bob@example.com', password, name: 'Bob' }
      await as().call(api.auth.register, { body: registered })
      await invite(world.tokens.harbor, { email: registered.email, roleId: admin })
      const waits = await as().call(api.auth.login, { body: { email: registered.email, password } })
      const bob = as(tokenOf(waits))
      await expect(bob.call(api.devices.list)).rejects.toEqual(failing(403, 'invitation_pending'))
      expect(await bob.call(api.auth.me)).toMatchObject({ permissions: [], memberships: [] })
      await expect(bob.call(api.users.acceptMine, { body: { orgId } })).rejects.toEqual(
        failing(403, 'email_unproved'),
      )
    })
  })

  describe('an invitation', () => {
    it('grants and discloses nothing before its holder accepts it', async () => {
      const id = await member()
      const before = await as(world.tokens.bakery).call(api.users.show, { params: { id } })
      const invited = await invite(world.tokens.harbor, { name: 'Typed' })
      expect(invited).toMatchObject({ id, name: 'Typed', status: 'invited' })
      const shown = await as(world.tokens.harbor).call(api.users.show, { params: { id } })
      expect(shown).toMatchObject({
        name: 'Typed',
        email,
        status: 'invited',
        avatarUrl: null,
        lastLoginAt: null,
        mfaEnabled: null,
        mfaMethod: null,
        phoneNumber: null,
        passwordChangedAt: null,
      })
      expect(JSON.stringify(shown)).not.toContain('Lovelace')
      const search = (q: string) => as(world.tokens.harbor).call(api.users.list, { query: { q } })
      expect((await search('Lovelace')).data).toEqual([])
      expect((await search('Typed')).data).toMatchObject([{ id, name: 'Typed' }])
      const holders = await as(world.tokens.harbor).call(api.roles.holders, { params: { id: viewer } })
      expect(JSON.stringify(holders)).not.toContain('Lovelace')
      // The first tenant still sees and may do what it could before.
      expect(await as(world.tokens.bakery).call(api.users.show, { params: { id } })).toEqual(before)
      await expect(login({ orgId: world.orgs.harbor.id })).rejects.toMatchObject({ status: 401 })
      const token = tokenOf(await login())
      expect((await as(token).call(api.auth.me)).memberships).toHaveLength(1)
      await acceptMine(token, { orgId: world.orgs.harbor.id })
      await login({ orgId: world.orgs.harbor.id })
      const now = await as(world.tokens.bakery).call(api.users.show, { params: { id } })
      expect(now).toMatchObject({ email, lastLoginAt: null, mfaEnabled: null })
    })

    it('is listed, searched and sorted only by what its tenant typed', async () => {
      const { harbor, bakery } = world.orgs
      const partner = as(world.tokens.globex)
      const at = async (real: string, typed: string) => {
        const [id, address] = [newId(), `${real}@example.com`.toLowerCase()]
        const account = { id, email: address, name: `${real} Real`, passwordHash: 'none' }
        await service.storage.write(async (tx) => {
          await insertUser(tx, account, clock())
          await joinOrganization(tx, { orgId: bakery.id, userId: id, roleId: viewer, siteIds: null }, clock())
        })
        clock.forward(1)
        await invite(world.tokens.harbor, { email: address.toUpperCase(), name: typed })
        return id
      }
      const pending = await at('Aaron', 'zz')
      const accepted = await at('Bert', 'yy')
      const vouched = await at('Carl', 'xx')
      const unused = (await invite(world.tokens.harbor, { email: 'own@example.com', name: 'ww' })).id
      const tenant = { kind: 'organization', orgId: harbor.id } as const
      await service.storage.write(async (tx) => {
        await acceptMembership(tx, accepted, tenant, 'holder', clock())
        await acceptMembership(tx, vouched, tenant, 'provider', clock())
      })
      const mine = [pending, accepted, vouched, unused]
      const rank = async (client: typeof partner, query: object = {}) =>
        (await client.call(api.users.list, { query })).data.filter(({ id }) => mine.includes(id))
      const named = (data: { name: string }[]) => data.map(({ name }) => name)
      for (const [client, query] of [
        [as(world.tokens.harbor), {}],
        [partner, { orgId: harbor.id }],
      ] as const) {
        expect(named(await rank(client, query))).toEqual(['ww', 'xx', 'yy', 'zz'])
        for (const q of ['real', 'aaron r', 'bert r', 'carl r'])
          expect(await rank(client, { ...query, q })).toEqual([])
        for (const q of ['AARON@', 'zz']) expect(named(await rank(client, { ...query, q }))).toEqual(['zz'])
        for (const status of ['active', 'invited', 'disabled'] as const) {
          const data = await rank(client, { ...query, status })
          expect(data.map((one) => one.status)).toEqual(data.map(() => status))
          expect(data).toHaveLength({ active: 2, invited: 2, disabled: 0 }[status])
        }
      }
      // The first tenant sees the real name until the holder accepts another tenant, not just its provider.
      const first = as(world.tokens.bakery)
      expect(named(await rank(first))).toEqual(['Aaron Real', 'Carl Real', 'bert@example.com'])
      expect(await rank(first, { q: 'bert real' })).toEqual([])
      expect(named(await rank(first, { q: 'carl real' }))).toEqual(['Carl Real'])
      expect(named(await rank(as(world.tokens.system), { q: 'bert real' }))).toEqual(['Bert Real'])
    })

    it('is accepted only by its holder, and its status is reported truthfully', async () => {
      const id = await member()
      await invite(world.tokens.harbor)
      const change = (status: 'active' | 'disabled' | 'invited') =>
        as(world.tokens.harbor).call(api.users.change, { params: { id }, body: { status } })
      await expect(change('active')).rejects.toEqual(failing(409, 'conflict'))
      expect(await change('disabled')).toMatchObject({ status: 'disabled' })
      const token = tokenOf(await login())
      await expect(acceptMine(token, { orgId: world.orgs.harbor.id })).rejects.toEqual(
        failing(404, 'invite_not_found'),
      )
      expect(await change('invited')).toMatchObject({ status: 'invited' })
      await acceptMine(token, { orgId: world.orgs.harbor.id })
      expect(await change('disabled')).toMatchObject({ status: 'disabled' })
      await login({ orgId: world.orgs.bakery.id })
      expect(await change('active')).toMatchObject({ status: 'active' })
      await login({ orgId: world.orgs.harbor.id })
    })

    it('of a new user can be activated by the inviter, and the user can still set a password', async () => {
      const { id } = await invite(world.tokens.bakery)
      const params = { id }
      const change = as(world.tokens.bakery).call(api.users.change, { params, body: { status: 'active' } })
      expect(await change).toMatchObject({ status: 'active' })
      await as().call(api.auth.forgotPassword, { body: { email } })
      await expect
        .poll(async () => (await lettersOf(service)).at(-1)?.kind, { timeout: 10_000 })
        .toBe('password-reset')
      const token = linkOf((await lettersOf(service)).at(-1)!.links[0])
      await as().call(api.auth.resetPassword, { body: { token, password } })
      await login()
      expect((await ada()).emailProvedAt).not.toBeNull()
    })

    it('demands the second factor of a user who has one', async () => {
      const id = await member()
      await invite(world.tokens.harbor)
      const token = tokenOf(await login())
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', id).execute(),
      )
      await expect(acceptMine(token, { orgId: world.orgs.harbor.id })).rejects.toEqual(
        failing(403, 'mfa_required'),
      )
    })
  })

  describe('a password reset of an account whose address is not proved', () => {
    it('removes the factors that whoever registered it set up', async () => {
      await as().call(api.auth.register, { body: { email, password, name: 'Mallory' } })
      const { id } = await ada()
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ mfa_method: 'totp', totp_secret: 'x' }).where('id', '=', id).execute(),
      )
      await as().call(api.auth.forgotPassword, { body: { email } })
      await expect
        .poll(async () => (await lettersOf(service)).at(-1)?.kind, { timeout: 10_000 })
        .toBe('password-reset')
      const token = linkOf((await lettersOf(service)).at(-1)!.links[0])
      await as().call(api.auth.resetPassword, { body: { token, password: `${password} again` } })
      expect(await ada()).toMatchObject({ mfaMethod: null, totpSecret: null })
      expect((await ada()).emailProvedAt).not.toBeNull()
    })
  })

  describe('a session of single sign-on', () => {
    it('sees and changes its organization, and nothing else of the account', async () => {
      const id = await member()
      await invite(world.tokens.harbor)
      const orgId = world.orgs.harbor.id
      await service.storage.write((tx) =>
        acceptMembership(tx, id, { kind: 'organization', orgId }, 'holder', clock()),
      )
      await service.storage.write((tx) =>
        tx
          .updateTable('users')
          .set({ phone_number: '+15550001111', phone_verified: 1 })
          .where('id', '=', id)
          .execute(),
      )
      const own = tokenOf(await login({ orgId: world.orgs.bakery.id }))
      const token = await bySso(id, orgId, true)
      const me = await as(token).call(api.auth.me)
      expect(me.memberships).toMatchObject([{ id: orgId }])
      expect(me.user.phoneLast4).toBeNull()
      expect((await as(token).call(api.users.me)).phoneNumber).toBeNull()
      expect((await as(token).call(api.users.myInvitations)).data).toEqual([])
      const refused = [
        as(token).call(api.users.changeMe, { body: { name: 'Mallory' } }),
        as(token).call(api.auth.setupMfa),
        as(token).call(api.auth.verifyPhone, { body: { phoneNumber: '+15550002222' } }),
        as(token).call(api.auth.changePassword, {
          body: { currentPassword: password, newPassword: `${password} 2` },
        }),
        as(token).call(api.auth.switch, { body: { orgId: world.orgs.bakery.id } }),
      ]
      for (const one of await Promise.allSettled(refused)) {
        expect(one).toMatchObject({ status: 'rejected', reason: { status: 403, code: 'forbidden' } })
      }
      await as(token).call(api.auth.logout)
      await expect(as(token).call(api.users.me)).rejects.toMatchObject({ status: 401 })
      expect(await as(own).call(api.users.me)).toMatchObject({ name: 'Ada Lovelace' })
    })

    it('of a user without a password changes the factor only if it is their only tenant', async () => {
      const id = await member()
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ password_hash: null }).where('id', '=', id).execute(),
      )
      const token = await bySso(id, world.orgs.bakery.id)
      await as(token).call(api.auth.setupMfa)
      // An open invitation of another tenant takes nothing away.
      await invite(world.tokens.harbor)
      await as(token).call(api.auth.setupMfa)
      const tenant = { kind: 'organization', orgId: world.orgs.harbor.id } as const
      await service.storage.write((tx) => acceptMembership(tx, id, tenant, 'holder', clock()))
      await expect(as(token).call(api.auth.setupMfa)).rejects.toEqual(failing(403, 'forbidden'))
    })

    it('that accepted an invitation opens nothing to a password', async () => {
      await accept(linkOf((await invite(world.tokens.bakery)).inviteUrl))
      await invite(world.tokens.harbor, { roleId: admin })
      const { id } = await ada()
      const orgId = world.orgs.harbor.id
      clock.forward(1)
      await service.storage.write((tx) =>
        acceptMembership(tx, id, { kind: 'organization', orgId }, 'provider', clock()),
      )
      await expect(login({ orgId })).rejects.toEqual(failing(401, 'invalid_credentials'))
      const token = tokenOf(await login())
      await expect(as(token).call(api.auth.switch, { body: { orgId } })).rejects.toMatchObject({
        status: 403,
      })
      const seen = await as(world.tokens.bakery).call(api.users.show, { params: { id } })
      expect(seen).toMatchObject({ name: 'Ada', mfaEnabled: false })
      await proved()
      await acceptMine(token, { orgId })
      await login({ orgId })
    })
  })

  describe('with rate limits', () => {
    beforeEach(async () => {
      const env = {
        RATE_LIMIT_MFA: '5/300',
        RATE_LIMIT_PASSWORD: '5/300',
        RATE_LIMIT_BEARER: '40/60',
        RATE_LIMIT_WRONG_PASSWORDS_NETWORK: '5/900',
        RATE_LIMIT_WRONG_PASSWORDS_ACCOUNT: '5/3600',
      }
      service = await startService(open, { clock, env, outside: { mailer: unsent(false) } })
      world = await buildWorld(service)
    })
    const failed = (promise: Promise<unknown>) =>
      promise.then(
        () => 'ok',
        ({ code }) => code as string,
      )
    const times = async (count: number, ask: () => Promise<unknown>) => {
      const all: string[] = []
      for (let n = 0; n < count; n += 1) all.push(await failed(ask()))
      return all
    }

    it('an identity provider consumes no codes, passwords or requests of the user elsewhere', async () => {
      const id = await member()
      const own = as(tokenOf(await login()))
      const factor = await enrolFactor(own, clock)
      const orgId = world.orgs.harbor.id
      await service.storage.write((tx) =>
        joinOrganization(
          tx,
          { orgId, userId: id, roleId: viewer, siteIds: null, acceptedBy: 'provider' },
          clock(),
        ),
      )
      clock.forward(300)
      const vouched = as(await bySso(id, orgId))
      const body = { currentPassword: 'wrong', newPassword: 'seven purple elephants on a roof' }
      expect(await times(7, () => vouched.call(api.auth.changePassword, { body }))).not.toContain('ok')
      const codes = await times(7, () => vouched.call(api.auth.verifyMfa, { body: { code: '000000' } }))
      expect(codes.slice(5)).toEqual(['rate_limited', 'rate_limited'])
      expect((await times(40, () => vouched.call(api.auth.me))).at(-1)).toBe('rate_limited')

      const { tempToken } = await login()
      const step = { tempToken: tempToken!, code: codeAt(factor.secret, clock) }
      const token = tokenOf(await as().call(api.auth.verifyMfa, { body: step }))
      const { currentPassword: _, ...rest } = body
      await as(token).call(api.auth.changePassword, { body: { currentPassword: password, ...rest } })
    })

    it('only an administrator of the whole account can clear wrong passwords, no mere inviter', async () => {
      const id = await member()
      const params = { params: { id } }
      const unlock = (token: string) => failed(as(token).call(api.users.unlock, params))
      const exhaustAttempts = () => times(5, () => login({}, 'a wrong password'))
      await exhaustAttempts()
      expect(await failed(login())).toBe('invalid_credentials')
      expect(await unlock(world.tokens.bakeryViewer)).toBe('forbidden')
      expect(await unlock(world.tokens.harbor)).toBe('not_found')
      await invite(world.tokens.harbor)
      expect(await unlock(world.tokens.harbor)).toBe('forbidden')
      expect(await failed(login())).toBe('invalid_credentials')

      const row = () => service.storage.read.selectFrom('users').selectAll().where('id', '=', id).execute()
      const before = await row()
      expect(await unlock(world.tokens.bakery)).toBe('ok')
      expect(await row(), 'of the account nothing else').toEqual(before)
      expect(await failed(login())).toBe('ok')
      expect(await unlock(world.tokens.bakery), 'whether or not there was anything').toBe('ok')
      const [entry] = await audited(service, 'user.unlock')
      expect(entry).toMatchObject({ result: 'success', resource: { id } })

      // If the account belongs to two tenants, only a system administrator can.
      const tenant = { kind: 'organization', orgId: world.orgs.harbor.id } as const
      await service.storage.write((tx) => acceptMembership(tx, id, tenant, 'holder', clock()))
      await exhaustAttempts()
      expect(await unlock(world.tokens.harbor)).toBe('forbidden')
      expect(await unlock(world.tokens.system)).toBe('ok')
      expect(await failed(login())).toBe('ok')
    })
  })

  describe('an access token alone', () => {
    it('changes no sign-in settings ten minutes after the last proof', async () => {
      await member()
      const session = (await login()).tokens as { accessToken: string; refreshToken: string }
      clock.forward(601)
      const { accessToken } = session
      const me = as(accessToken)
      const again = failing(403, 'reauthentication_required')
      await expect(me.call(api.auth.setupMfa)).rejects.toEqual(again)
      const phone = me.call(api.auth.verifyPhone, { body: { phoneNumber: '+15550002222' } })
      await expect(phone).rejects.toEqual(again)
      await expect(me.call(api.auth.setupMfa, { body: { currentPassword: 'wrong' } })).rejects.toMatchObject({
        code: 'wrong_password',
      })
      await me.call(api.auth.setupMfa, { body: { currentPassword: password } })
      // Switching memberships is no proof either.
      const switched = tokenOf(await me.call(api.auth.switch, { body: {} }))
      await expect(as(switched).call(api.auth.setupMfa)).rejects.toEqual(again)
      await as(tokenOf(await login())).call(api.auth.setupMfa)
    })
  })
})
