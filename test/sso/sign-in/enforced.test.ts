import { describe, expect, it } from 'vitest'
import { readOutboxMessages } from '../../../daemon/integrations/outbox.ts'
import { api } from '../../../src/api.ts'
import { addSeconds } from '../../../src/core/time.ts'
import { joinOrganization, joinPartner } from '../../../src/identity/memberships.ts'
import { hashPassword } from '../../../src/identity/password-hash.ts'
import { saveReset } from '../../../src/identity/passwords/store.ts'
import { newToken, tokenHash } from '../../../src/identity/sessions/tokens.ts'
import { inTurn } from '../../databases.ts'
import { adminEmail, adminPassword as password, type TestService } from '../../harness.ts'
import { received, tokenIn } from '../../identity/mailbox.ts'
import { newEntries } from '../../laws/audited.ts'
import { userIdOf } from '../../laws/fixture.ts'
import { addProvider, roleOf } from '../../world.ts'
import { addMember, codeIn, person, start } from './sign-in-fixture.ts'

const day = 24 * 3600
const hashed = hashPassword(password)

async function addWithPassword(service: TestService, orgId: string, email: string): Promise<string> {
  const id = await addMember(service, orgId, email)
  const set = { password_hash: await hashed }
  await service.storage.write((tx) => tx.updateTable('users').set(set).where('id', '=', id).execute())
  return id
}

const login = (service: TestService, email: string, to: { orgId?: string; partnerId?: string } = {}) =>
  service.client().call(api.auth.login, { body: { email, password, ...to } })

const refused = { status: 401, code: 'invalid_credentials' }

inTurn((open) => {
  /** The bakery with a provider, and the member Dora, who also has a password. */
  async function setUp() {
    const on = await start(open)
    const { id } = await on.provider()
    const dora = await addWithPassword(on.service, on.bakery.id, person.email)
    const change = (body: { enforceSSO: boolean; force?: true }) =>
      on.system.call(api.ssoProviders.update, { params: { id }, body })
    const enforce = () => change({ enforceSSO: true, force: true })
    const setStatus = (status: 'active' | 'inactive') =>
      on.system.call(api.ssoProviders.setStatus, { params: { id }, body: { status } })
    const bySso = async (who = person) => {
      const { location } = await on.signIn(who)
      return on.service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
    }
    return { ...on, id, dora, change, enforce, setStatus, bySso }
  }

  describe('enforced single sign-on', () => {
    it('starts when an administrator signed in with the provider within a day, or by force', async () => {
      const { service, clock, bakery, change, bySso } = await setUp()
      const viewer = { ...person, sub: 'subject-2', email: 'vic@bakery.example.com' }
      const userId = await addMember(service, bakery.id, viewer.email)
      const role_id = roleOf('Org Viewer', 'organization')
      await service.storage.write((tx) =>
        tx.updateTable('organization_memberships').set({ role_id }).where('user_id', '=', userId).execute(),
      )
      const enforce = () => change({ enforceSSO: true })
      const unproven = { status: 400, details: [{ path: 'body.enforceSSO' }] }
      await expect(enforce()).rejects.toMatchObject(unproven)
      await bySso(viewer)
      await expect(enforce()).rejects.toMatchObject(unproven)
      await bySso()
      clock.forward(day)
      await expect(enforce()).rejects.toMatchObject(unproven)
      await bySso()
      clock.forward(day - 1)
      expect((await enforce()).data.enforceSSO).toBe(true)
      await change({ enforceSSO: false })
      clock.forward(1)
      await expect(enforce()).rejects.toMatchObject(unproven)
      expect((await change({ enforceSSO: true, force: true })).data.enforceSSO).toBe(true)
    })

    it('refuses the password of a member, and gives the reason only in the audit log', async () => {
      const { service, bakery, dora, enforce, bySso } = await setUp()
      expect((await login(service, person.email)).tokens).not.toBeNull()
      await enforce()
      const news = await newEntries(service)
      await expect(login(service, person.email)).rejects.toMatchObject(refused)
      await expect(login(service, person.email, { orgId: bakery.id })).rejects.toMatchObject(refused)
      const entry = { action: 'user.login.failed', orgId: bakery.id, actorId: dora }
      const failedLogin = { ...entry, details: { reason: 'sso_required' } }
      expect(await news()).toMatchObject([failedLogin, failedLogin])
      expect(await service.client((await bySso()).accessToken).call(api.auth.me)).toMatchObject({
        orgId: bakery.id,
      })
    })

    it('leaves other memberships open to a password, but not a switch from there', async () => {
      const { service, world, bakery, garage, dora, enforce } = await setUp()
      const { acme } = world.partners
      const roleId = roleOf('Partner Viewer', 'partner')
      await service.storage.write((tx) =>
        joinPartner(
          tx,
          { partnerId: acme, userId: dora, roleId, orgs: 'all' },
          addSeconds('2026-03-01T12:00:00.000Z', 1),
        ),
      )
      await enforce()
      const { tokens } = await login(service, person.email)
      const client = service.client(tokens?.accessToken)
      expect(await client.call(api.auth.me)).toMatchObject({ scope: 'partner', partnerId: acme })
      await expect(client.call(api.auth.switch, { body: { orgId: bakery.id } })).rejects.toMatchObject({
        status: 403,
        code: 'sso_required',
        message: 'Your organization requires SSO',
      })
      await expect(client.call(api.auth.switch, { body: { orgId: garage.id } })).rejects.toMatchObject({
        status: 403,
        code: 'forbidden',
      })
      await expect(login(service, person.email, { orgId: bakery.id })).rejects.toMatchObject(refused)
      expect((await login(service, person.email, { partnerId: acme })).tokens).not.toBeNull()
    })

    it('sends no password reset link, and accepts none', async () => {
      const { service, clock, garage, dora, enforce, bySso } = await setUp()
      const other = 'gus@garage.example.com'
      await addWithPassword(service, garage.id, other)
      const token = newToken()
      const reset = { userId: dora, tokenHash: tokenHash(token), expiresAt: addSeconds(clock(), 3600) }
      await service.storage.write((tx) => saveReset(tx, reset))
      await enforce()
      for (const email of [person.email, other])
        expect(await service.client().call(api.auth.forgotPassword, { body: { email } })).toEqual({
          success: true,
          message: 'If this email exists, a reset link will be sent.',
        })
      expect(tokenIn(await received(service, other, 'password-reset'))).not.toBe('')
      expect((await readOutboxMessages(service.dataDir)).filter(({ to }) => to === person.email)).toEqual([])
      const wanted = 'seven purple elephants on a roof'
      await expect(
        service.client().call(api.auth.resetPassword, { body: { token, password: wanted } }),
      ).rejects.toMatchObject({
        status: 403,
        code: 'sso_required',
        message: 'Password reset is disabled because your organization requires SSO.',
      })
      const body = { currentPassword: password, newPassword: wanted }
      const { accessToken } = await bySso()
      await expect(service.client(accessToken).call(api.auth.changePassword, { body })).rejects.toMatchObject(
        {
          status: 403,
          code: 'sso_required',
          message: 'Password change is disabled because your organization requires SSO.',
        },
      )
    })

    it('ends sessions that began with a password at once, and no others', async () => {
      const { service, world, enforce, bySso } = await setUp()
      const { tokens } = await login(service, person.email)
      const mine = await bySso()
      const me = (token: string | undefined) => service.client(token).call(api.auth.me)
      const refresh = (refreshToken: string | undefined) =>
        service.client().call(api.auth.refresh, { body: { refreshToken: refreshToken! } })
      await enforce()
      await expect(me(tokens?.accessToken)).rejects.toMatchObject({ status: 401 })
      await expect(refresh(tokens?.refreshToken)).rejects.toMatchObject({ status: 401 })
      expect(await me(mine.accessToken)).toMatchObject({ scope: 'organization' })
      expect((await refresh(mine.refreshToken)).tokens.accessToken).toBeDefined()
      expect(await me(world.tokens.garage)).toMatchObject({ scope: 'organization' })
      expect(await me(world.tokens.acme)).toMatchObject({ scope: 'partner' })
    })

    it('ends a password session that began at the same moment', async () => {
      const { service, enforce, dora } = await setUp()
      const { tokens } = await login(service, person.email)
      await enforce()
      await service.storage.write((tx) =>
        tx.updateTable('sessions').set({ revoked_at: null }).where('user_id', '=', dora).execute(),
      )
      const body = { refreshToken: tokens!.refreshToken! }
      await expect(service.client().call(api.auth.refresh, { body })).rejects.toMatchObject({ status: 401 })
    })

    it('gives no session to a user who accepts an invitation with a password', async () => {
      const { service, system, bakery, enforce } = await setUp()
      await enforce()
      const roleId = roleOf('Org Viewer', 'organization')
      const email = 'new@bakery.example.com'
      const invited = await system.call(api.users.invite, {
        body: { email, name: 'New', roleId, orgId: bakery.id },
      })
      const token = new URL(invited.inviteUrl!).searchParams.get('token')!
      const accepted = await service.client().call(api.auth.acceptInvite, { body: { token, password } })
      expect(accepted).toMatchObject({ tokens: null, user: { email, status: 'active' } })
      await expect(login(service, email)).rejects.toMatchObject(refused)
    })

    it('still lets a system administrator sign in with a password, which the audit log records', async () => {
      const { service, clock, bakery, enforce } = await setUp()
      const userId = await userIdOf(service, 'admin')
      const joins = { orgId: bakery.id, userId, roleId: roleOf('Org Admin', 'organization'), siteIds: null }
      await service.storage.write((tx) => joinOrganization(tx, joins, clock()))
      await enforce()
      const news = await newEntries(service)
      const { tokens } = await login(service, adminEmail)
      expect(await service.client(tokens?.accessToken).call(api.auth.me)).toMatchObject({ scope: 'system' })
      expect(await news()).toMatchObject([
        { action: 'user.login', actorId: userId, details: { method: 'password', breaksGlass: true } },
      ])
    })

    it('ends when its provider is deactivated or deleted', async () => {
      const { service, id, system, enforce, setStatus } = await setUp()
      await enforce()
      await setStatus('inactive')
      expect((await login(service, person.email)).tokens).not.toBeNull()
      await setStatus('active')
      await expect(login(service, person.email)).rejects.toMatchObject(refused)
      await system.call(api.ssoProviders.remove, { params: { id } })
      expect((await login(service, person.email)).tokens).not.toBeNull()
    })

    it('follows the oldest active provider, and after its removal the next one', async () => {
      const { service, clock, system, bakery, enforce, change } = await setUp()
      const older = { status: 'active', createdAt: addSeconds(clock(), -60) } as const
      const before = await addProvider(service, bakery.id, { ...older, name: 'older' })
      await enforce()
      const { tokens } = await login(service, person.email)
      const me = () => service.client(tokens?.accessToken).call(api.auth.me)
      expect(await me()).toMatchObject({ scope: 'organization' })
      await system.call(api.ssoProviders.remove, { params: { id: before } })
      await expect(me()).rejects.toMatchObject({ status: 401 })
      await expect(login(service, person.email)).rejects.toMatchObject(refused)
      const strict = { ...older, name: 'strict', enforceSSO: true }
      await change({ enforceSSO: false })
      await addProvider(service, bakery.id, strict)
      await expect(login(service, person.email)).rejects.toMatchObject(refused)
    })
  })
})
