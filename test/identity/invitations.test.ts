import { hash } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { addSeconds } from '../../src/core/time.ts'
import { markEmailProved, sweepInvited } from '../../src/identity/store.ts'
import type { Mailer } from '../../src/messages/ports.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestClock, type TestService, testClock } from '../harness.ts'
import { addGroup, addOrgUser, addPartnerUser, buildWorld, roleOf, type World } from '../world.ts'
import { lettersOf, unsent } from './mail.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })
const password = 'nine quiet herons over the weir'
const viewer = roleOf('Org Viewer', 'organization')

inTurn((open) => {
  let service: TestService
  let world: World
  let clock: TestClock

  const begin = async (options: { mailer?: Mailer; env?: Record<string, string> } = {}) => {
    clock = testClock(new Date().toISOString())
    const { mailer, env } = options
    service = await startService(open, {
      clock,
      ...(env && { env }),
      outside: { mailer: mailer ?? unsent(false) },
    })
    world = await buildWorld(service)
  }
  beforeEach(() => begin())

  const as = (token?: string) => service.client(token)
  const ada = (more: object = {}) => ({
    body: { email: 'ada@example.com', name: 'Ada', roleId: viewer, ...more },
  })
  const invite = (token = world.tokens.bakery, more: object = {}) =>
    as(token).call(api.users.invite, ada(more))
  const tokenOf = ({ inviteUrl = '' }: { inviteUrl?: string | undefined }) =>
    new URL(inviteUrl).searchParams.get('token') ?? ''
  const accept = (token: string, secret = password) =>
    as().call(api.auth.acceptInvite, { body: { token, password: secret } })
  const preview = (token: string) => as().call(api.auth.previewInvite, { body: { token } })
  const login = (orgId?: string) =>
    as().call(api.auth.login, {
      body: { email: 'ada@example.com', password, ...(orgId !== undefined && { orgId }) },
    })

  const mails = () => lettersOf(service)

  describe('an invitation', () => {
    it('creates an account without a password and mails its link', async () => {
      const invited = await invite()
      expect(invited).toMatchObject({
        email: 'ada@example.com',
        name: 'Ada',
        status: 'invited',
        roleId: viewer,
        inviteEmailSent: false,
      })
      expect(invited.inviteUrl).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/accept-invite\?token=[\w-]{43}$/)
      const [mail] = await mails()
      expect(mail).toMatchObject({
        to: 'ada@example.com',
        kind: 'invitation',
        subject: 'bakery-admin invites you to bakery',
        links: [invited.inviteUrl],
      })
      const row = await service.storage.read.selectFrom('invitations').selectAll().executeTakeFirstOrThrow()
      expect(row.token_hash).toBe(hash('sha256', tokenOf(invited), 'hex'))
      expect(JSON.stringify(row)).not.toContain(tokenOf(invited))
      await expect(login()).rejects.toEqual(failing(401, 'invalid_credentials'))
      const { data } = await as(world.tokens.bakery).call(api.users.list, { query: { status: 'invited' } })
      expect(data.map(({ name }) => name)).toEqual(['Ada'])
    })

    it('shows its tenant, and becomes a signed-in account when accepted', async () => {
      const token = tokenOf(await invite())
      expect(await preview(token)).toMatchObject({ email: 'ada@example.com', name: 'Ada', orgName: 'bakery' })
      const signedIn = await accept(token)
      expect(signedIn).toMatchObject({
        user: { email: 'ada@example.com', status: 'active', mfaEnabled: false },
        mfaRequired: false,
        mfaEnrollmentRequired: false,
      })
      const me = as(signedIn.tokens!.accessToken)
      expect(await me.call(api.users.me)).toMatchObject({ orgId: world.orgs.bakery.id, status: 'active' })
      expect((await login()).tokens?.accessToken).toBeDefined()
      const { data } = await as(world.tokens.bakery).call(api.auditLogs.list, { query: { limit: 3 } })
      expect(data.map(({ action }) => action)).toEqual(['user.login', 'user.invite.accepted', 'user.invite'])
      expect(JSON.stringify(data)).not.toContain(token)
    })

    it('makes a partner administrator enroll a second factor at once', async () => {
      const body = { roleId: roleOf('Partner Admin', 'partner'), orgAccess: 'all' }
      const { tokens, ...signedIn } = await accept(tokenOf(await invite(world.tokens.acme, body)))
      expect(signedIn).toMatchObject({ mfaEnrollmentRequired: true, enrollUrl: '/auth/mfa/setup' })
      const list = as(tokens!.accessToken).call(api.users.list)
      await expect(list).rejects.toEqual(failing(428, 'mfa_enrollment_required'))
    })

    it('is accepted only once, even by concurrent requests', async () => {
      const token = tokenOf(await invite())
      const tries = Array.from({ length: 6 }, (_, n) => accept(token, `${password} ${n}`))
      const results = await Promise.allSettled(tries)
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      for (const one of results) {
        if (one.status === 'rejected') {
          expect(one.reason).toMatchObject({
            status: 400,
            message: 'This invite has already been accepted',
          })
        }
      }
      await expect(accept(token)).rejects.toMatchObject({ status: 400, details: [{ path: 'body.token' }] })
      await expect(preview(token)).rejects.toEqual(failing(410, 'invite_accepted'))
    })

    it('expires after seven days, and cannot be found by guessing', async () => {
      const token = tokenOf(await invite())
      clock.forward(7 * 24 * 3600 - 1)
      await preview(token)
      clock.forward(1)
      for (const gone of [token, 'a-guess', '']) {
        const status = gone === '' ? 400 : 404
        await expect(preview(gone)).rejects.toMatchObject({ status })
        await expect(accept(gone)).rejects.toMatchObject({ status: 400 })
      }
      await expect(accept(token)).rejects.toMatchObject({ message: 'Invalid or expired invite token' })
    })

    it('refuses a weak password, and still works afterwards', async () => {
      const token = tokenOf(await invite())
      for (const weak of ['short', 'x'.repeat(129), 'ada@example.com']) {
        await expect(accept(token, weak)).rejects.toMatchObject({
          status: 400,
          details: [{ path: 'body.password' }],
        })
      }
      expect((await accept(token)).tokens).not.toBeNull()
    })

    it('is invalidated by sending it again, which works for invited users only', async () => {
      const first = await invite()
      const again = (userId: string) =>
        as(world.tokens.bakery).call(api.users.resendInvite, { body: { userId } })
      const second = await again(first.id)
      expect(second).toMatchObject({ success: true, inviteEmailSent: false })
      await expect(preview(tokenOf(first))).rejects.toEqual(failing(404, 'invite_not_found'))
      expect(await mails()).toHaveLength(2)
      await accept(tokenOf(second))
      await expect(again(first.id)).rejects.toMatchObject({
        status: 400,
        message: 'User is not in invited status',
      })
      const foreign = as(world.tokens.garage).call(api.users.resendInvite, { body: { userId: first.id } })
      await expect(foreign).rejects.toEqual(failing(404, 'not_found'))
    })

    it('ends with the membership, and is suspended while the account is disabled', async () => {
      const { id, ...sent } = await invite()
      const bakery = as(world.tokens.bakery)
      await bakery.call(api.users.change, { params: { id }, body: { status: 'disabled' } })
      await expect(accept(tokenOf(sent))).rejects.toMatchObject({ status: 400 })
      await bakery.call(api.users.change, { params: { id }, body: { status: 'invited' } })
      await preview(tokenOf(sent))
      await bakery.call(api.users.remove, { params: { id } })
      await expect(preview(tokenOf(sent))).rejects.toEqual(failing(404, 'invite_not_found'))
      // The address can be invited again.
      expect(await invite()).toMatchObject({ id, status: 'invited' })
    })

    it('leaves no account once it was withdrawn, unless another tenant invites, or the person is there', async () => {
      const { id } = await invite()
      const bakery = as(world.tokens.bakery)
      const account = async () =>
        (await service.storage.read.selectFrom('users').select('id').where('id', '=', id).execute()).length
      const sweep = () => service.storage.write((tx) => sweepInvited(tx, addSeconds(clock(), 2 * 86_400)))
      await sweep()
      expect(await account()).toBe(1)
      await bakery.call(api.users.remove, { params: { id } })
      await invite(world.tokens.garage)
      await sweep()
      expect(await account()).toBe(1)
      await as(world.tokens.garage).call(api.users.remove, { params: { id } })
      await sweep()
      expect(await account()).toBe(0)
      const again = await invite()
      expect(again.id).not.toBe(id)
      await accept(tokenOf(again))
      await bakery.call(api.users.remove, { params: { id: again.id } })
      await sweep()
      const users = service.storage.read.selectFrom('users').select('id').where('id', '=', again.id)
      expect(await users.execute()).toHaveLength(1)
    })

    it('never sets the password of an account that has one', async () => {
      const { id, ...sent } = await invite()
      await accept(tokenOf(sent))
      const system = as(world.tokens.system)
      await system.call(api.users.change, { params: { id }, body: { status: 'invited' } })
      const resend = system.call(api.users.resendInvite, { body: { userId: id } })
      await expect(resend).rejects.toEqual(failing(409, 'conflict'))
      // Not even with an old link.
      await service.storage.write((tx) => tx.updateTable('invitations').set({ accepted_at: null }).execute())
      await expect(accept(tokenOf(sent), 'another password entirely')).rejects.toMatchObject({ status: 400 })
    })

    it('to an existing account adds a membership and mails a sign-in link', async () => {
      await accept(tokenOf(await invite()))
      const added = await invite(world.tokens.harbor)
      expect(added).toMatchObject({ status: 'invited', name: 'Ada', inviteEmailSent: false })
      expect(added.inviteUrl).toBeUndefined()
      const mail = (await mails()).at(-1)!
      expect(mail.kind).toBe('membership')
      expect(mail.links).toEqual([`${service.url}/login`, `${service.url}/forgot-password`])
      await expect(login(world.orgs.harbor.id)).rejects.toEqual(failing(401, 'invalid_credentials'))
      const own = as((await login()).tokens!.accessToken)
      const waits = { orgId: world.orgs.harbor.id, partnerId: null, name: 'harbor', roleName: 'Org Viewer' }
      expect((await own.call(api.users.myInvitations)).data).toMatchObject([waits])
      const body = { orgId: world.orgs.harbor.id }
      // The inviter has seen the link that set the password, so using it does not prove the address.
      const acceptMine = () => own.call(api.users.acceptMine, { body })
      await expect(acceptMine()).rejects.toEqual(failing(403, 'email_unproved'))
      await service.storage.write((tx) => markEmailProved(tx, added.id, clock()))
      expect(await acceptMine()).toEqual({ success: true })
      await expect(acceptMine()).rejects.toEqual(failing(404, 'invite_not_found'))
      const { tokens } = await login(world.orgs.harbor.id)
      const me = await as(tokens!.accessToken).call(api.users.me)
      expect(me.orgId).toBe(world.orgs.harbor.id)
    })

    it('of two tenants to one new account gives neither inviter a link into the other', async () => {
      const first = await invite(world.tokens.bakery)
      const second = await invite(world.tokens.harbor)
      expect(second.id).toBe(first.id)
      expect(second.inviteUrl).toBeUndefined()
      const resent = await as(world.tokens.harbor).call(api.users.resendInvite, {
        body: { userId: first.id },
      })
      expect(resent.inviteUrl).toBeUndefined()
      const mailed = (await mails()).at(-1)!.links[0]
      await accept(tokenOf({ inviteUrl: mailed }))
      await expect(preview(tokenOf(first))).rejects.toEqual(failing(404, 'invite_not_found'))
    })

    it('into the same tenant twice is refused, even concurrently or in different letter case', async () => {
      await invite()
      const again = invite(world.tokens.bakery, { email: 'ADA@Example.com' })
      await expect(again).rejects.toMatchObject({
        status: 409,
        code: 'user_exists',
        message: 'User already exists in this scope',
      })
      const email = 'bob@example.com'
      const tries = Array.from({ length: 5 }, () => invite(world.tokens.bakery, { email }))
      const results = await Promise.allSettled(tries)
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      for (const one of results) {
        if (one.status === 'rejected') expect(one.reason).toEqual(failing(409, 'user_exists'))
      }
    })

    it('shows the link only while no mail server is configured', async () => {
      await begin({ mailer: unsent(true) })
      const invited = await invite()
      expect(invited.inviteEmailSent).toBe(true)
      expect(invited.inviteUrl).toBeUndefined()
    })

    it('links to the public URL of the service', async () => {
      await begin({ env: { PUBLIC_URL: 'https://svc.example.com' } })
      expect((await invite()).inviteUrl).toMatch(/^https:\/\/svc\.example\.com\/accept-invite\?token=/)
    })

    it('changes nothing when it fails', async () => {
      const siteIds = [world.orgs.garage.siteId]
      await expect(invite(world.tokens.bakery, { siteIds })).rejects.toMatchObject({ status: 400 })
      expect(await mails()).toEqual([])
      const users = service.storage.read
        .selectFrom('users')
        .selectAll()
        .where('email', '=', 'ada@example.com')
      expect(await users.execute()).toEqual([])
    })
  })

  describe('the target of an invitation', () => {
    it('is the partner itself or one of its organizations, for a partner', async () => {
      const technician = roleOf('Partner Technician', 'partner')
      const { id } = await invite(world.tokens.acme, { roleId: technician })
      const shown = await as(world.tokens.acme).call(api.users.show, { params: { id } })
      expect(shown).toMatchObject({ partnerId: world.partners.acme, orgAccess: 'none', orgIds: null })
      const orgId = world.orgs.garage.id
      await invite(world.tokens.acme, { email: 'b@example.com', orgId })
      const foreign = invite(world.tokens.acme, { email: 'c@example.com', orgId: world.orgs.harbor.id })
      await expect(foreign).rejects.toEqual(failing(403, 'org_access_denied'))
      const other = invite(world.tokens.acme, { partnerId: world.partners.globex, roleId: technician })
      await expect(other).rejects.toEqual(failing(403, 'partner_mismatch'))
      for (const token of [world.tokens.acmeBakery, world.tokens.acmeNone]) {
        await expect(invite(token, { orgId })).rejects.toEqual(failing(403, 'partner_access_limited'))
      }
    })

    it('is named explicitly, for a system administrator', async () => {
      await expect(invite(world.tokens.system)).rejects.toMatchObject({
        code: 'tenant_required',
        message: 'Partner or organization context required',
      })
      await invite(world.tokens.system, { orgId: world.orgs.harbor.id })
      const roleId = roleOf('Partner Viewer', 'partner')
      const partnerId = world.partners.globex
      await invite(world.tokens.system, { partnerId, roleId, orgAccess: 'all' })
      const { data } = await as(world.tokens.globex).call(api.users.list)
      expect(data.map(({ name }) => name)).toContain('Ada')
    })

    it('is the organization itself, without partner fields, for an organization', async () => {
      const elsewhere = invite(world.tokens.bakery, { orgId: world.orgs.garage.id })
      await expect(elsewhere).rejects.toEqual(failing(403, 'org_access_denied'))
      await expect(invite(world.tokens.bakery, { orgAccess: 'all' })).rejects.toMatchObject({
        status: 400,
        message: 'orgAccess is only valid for partner scope',
      })
      const roleId = roleOf('Partner Viewer', 'partner')
      await expect(invite(world.tokens.bakery, { roleId })).rejects.toMatchObject({
        status: 400,
        message: 'Invalid role for this scope',
      })
    })

    it('has organizations exactly if orgAccess is selected, all of them of the partner', async () => {
      const roleId = roleOf('Partner Viewer', 'partner')
      const { bakery, garage, harbor } = world.orgs
      const tries: [object, string][] = [
        [{ orgAccess: 'selected' }, 'orgIds required when orgAccess is selected'],
        [{ orgAccess: 'selected', orgIds: [] }, 'orgIds required when orgAccess is selected'],
        [{ orgIds: [bakery.id] }, 'orgIds can only be provided when orgAccess is selected'],
        [{ siteIds: [bakery.siteId] }, 'siteIds is only valid for organization scope'],
      ]
      for (const [body, message] of tries) {
        await expect(invite(world.tokens.acme, { roleId, ...body })).rejects.toMatchObject({
          status: 400,
          message,
        })
      }
      const orgIds = [bakery.id, harbor.id]
      const mixed = invite(world.tokens.acme, { roleId, orgAccess: 'selected', orgIds })
      await expect(mixed).rejects.toMatchObject({ status: 400, details: [{ path: 'body.orgIds.1' }] })
      const both = { roleId, orgAccess: 'selected', orgIds: [bakery.id, garage.id] }
      const { tokens } = await accept(tokenOf(await invite(world.tokens.acme, both)))
      const seen = await as(tokens!.accessToken).call(api.orgs.list)
      expect(seen.data.map(({ name }) => name)).toEqual(['bakery', 'garage'])
    })

    it('has only sites and device groups of the organization', async () => {
      const { bakery, garage } = world.orgs
      const sites = invite(world.tokens.bakery, { siteIds: [bakery.siteId, garage.siteId] })
      await expect(sites).rejects.toMatchObject({ status: 400, details: [{ path: 'body.siteIds.1' }] })
      const groups = invite(world.tokens.bakery, { deviceGroupIds: [garage.groupId] })
      await expect(groups).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.deviceGroupIds.0' }],
      })
    })

    it('is within the sites and groups of an inviter who is restricted to some', async () => {
      const { bakery } = world.orgs
      const annex = await as(world.tokens.bakery).call(api.sites.create, {
        body: { orgId: bakery.id, name: 'Annex' },
      })
      const empty = await addGroup(service, bakery.id, 'empty', [])
      const ofSite = await addOrgUser(service, 'of-site', bakery.id, { siteIds: [bakery.siteId] })
      const ofGroup = await addOrgUser(service, 'of-group', bakery.id, { groupIds: [bakery.groupId] })
      const limited = failing(403, 'site_access_denied')
      await expect(invite(ofSite)).rejects.toEqual(limited)
      await expect(invite(ofGroup)).rejects.toEqual(limited)
      await expect(invite(ofSite, { siteIds: [annex.id] })).rejects.toMatchObject({ status: 400 })
      await expect(invite(ofGroup, { deviceGroupIds: [empty] })).rejects.toMatchObject({ status: 400 })
      await invite(ofSite, { siteIds: [bakery.siteId] })
      await invite(ofGroup, { email: 'g@example.com', deviceGroupIds: [bakery.groupId] })
    })
  })

  describe('the rate of previews and acceptances', () => {
    it('is limited by client address', async () => {
      await begin({ env: { RATE_LIMIT_INVITE_PREVIEW: '2/600', RATE_LIMIT_INVITE_ACCEPT: '1/3600' } })
      for (const tries of [preview, preview, accept]) {
        await expect(tries('a-guess')).rejects.not.toMatchObject({ status: 429 })
      }
      await expect(preview('a-guess')).rejects.toEqual(failing(429, 'rate_limited'))
      await expect(accept('a-guess')).rejects.toEqual(failing(429, 'rate_limited'))
      expect(await addPartnerUser(service, 'unrelated', world.partners.acme, 'all')).toBeDefined()
    })
  })
})
