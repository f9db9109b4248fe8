import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { zeroId } from '../../../src/core/ids.ts'
import { newId } from '../../../src/core/new-id.ts'
import { joinOrganization } from '../../../src/identity/memberships.ts'
import { hashPassword } from '../../../src/identity/password-hash.ts'
import { insertUser } from '../../../src/identity/store.ts'
import { failures } from '../../../src/sso/failures.ts'
import { inTurn } from '../../databases.ts'
import { newEntries } from '../../laws/audited.ts'
import { roleOf } from '../../world.ts'
import { codeIn, errorIn, start } from './sign-in-fixture.ts'

const password = 'nine quiet herons over the weir'
const email = 'gus@garage.example.com'
const gus = { sub: 'gus', email: 'Gus@Garage.example.com', name: 'Told by the provider' }
const viewer = roleOf('Org Viewer', 'organization')

inTurn((open) => {
  /** The bakery with provisioning; Gus has an account and belongs to the garage. */
  async function setUp(more: object = { autoProvision: true, defaultRoleId: viewer }) {
    const on = await start(open)
    const { service, clock, garage, bakery } = on
    const id = newId()
    const passwordHash = await hashPassword(password)
    const account = { id, email, name: 'Gus Secret', passwordHash, emailProvedAt: clock() }
    await service.storage.write(async (tx) => {
      await insertUser(tx, account, clock())
      await joinOrganization(tx, { orgId: garage.id, userId: id, roleId: viewer, siteIds: null }, clock())
    })
    await on.provider(more)
    const login = async (orgId?: string) => {
      const { tokens } = await service.client().call(api.auth.login, { body: { email, password, orgId } })
      return service.client(tokens!.accessToken)
    }
    const memberships = () =>
      service.storage.read
        .selectFrom('organization_memberships')
        .selectAll()
        .where('user_id', '=', id)
        .where('org_id', '=', bakery.id)
        .execute()
    const setAccount = (set: object) =>
      service.storage.write((tx) => tx.updateTable('users').set(set).where('id', '=', id).execute())
    return { ...on, id, login, memberships, setAccount }
  }

  describe('an address that has an account elsewhere', () => {
    it('is invited once by the provider, and signed in after its holder accepts', async () => {
      const { service, client, bakery, garage, signIn, id, login, memberships, world } = await setUp()
      const garageAdmin = service.client(world.tokens.garage)
      const seen = () => garageAdmin.call(api.users.show, { params: { id } })
      const before = await seen()
      const countMails = async () =>
        (await service.storage.read.selectFrom('mails').select('id').execute()).length
      const [mails, news] = [await countMails(), await newEntries(service)]

      const { location } = await signIn(gus)
      const { message, hint } = failures.invitation_pending
      const query = Object.fromEntries(new URL(location).searchParams)
      expect(query).toEqual({ error: 'invitation_pending', message, hint, orgId: bakery.id })
      expect(hint).toContain('svc invite accept')
      expect(codeIn(location)).toBe('')
      expect(await memberships()).toMatchObject([
        { accepted_at: null, accepted_by: null, invited_name: gus.name, invited_email: gus.email },
      ])
      expect(await news()).toMatchObject([
        {
          action: 'user.invite',
          orgId: bakery.id,
          resourceId: id,
          resourceName: gus.email,
          actorType: 'system',
          actorId: zeroId,
          result: 'success',
          details: { method: 'sso', roleName: 'Org Viewer' },
        },
      ])
      // Further sign-ins create, send and accept nothing more, as only the provider asserts them.
      for (const _ of [1, 2]) expect(errorIn((await signIn(gus)).location)).toBe('invitation_pending')
      const more = await news()
      expect(more.map(({ action, result }) => [action, result])).toEqual([
        ['user.login.failed', 'failure'],
        ['user.login.failed', 'failure'],
      ])
      expect(await memberships()).toMatchObject([{ accepted_at: null }])
      expect(await service.storage.read.selectFrom('sso_identities').selectAll().execute()).toEqual([])
      expect(await countMails()).toBe(mails)

      // The bakery sees what its provider asserted, the garage what it saw before.
      const shown = await client.call(api.users.show, { params: { id } })
      expect(shown).toMatchObject({ name: gus.name, email: gus.email, status: 'invited', mfaEnabled: null })
      expect(JSON.stringify([shown, more])).not.toMatch(/Secret|gus@garage/)
      expect(await seen()).toEqual(before)

      const holder = await login()
      await expect(login(bakery.id)).rejects.toMatchObject({ status: 401 })
      const { data } = await holder.call(api.users.myInvitations)
      expect(data).toMatchObject([{ orgId: bakery.id, name: 'bakery', roleName: 'Org Viewer' }])
      await holder.call(api.users.acceptMine, { body: { orgId: bakery.id } })
      await login(bakery.id)
      await login(garage.id)
      const code = codeIn((await signIn(gus)).location)
      const { accessToken } = await service.client().call(api.ssoSignIn.exchange, { body: { code } })
      expect((await service.client(accessToken).call(api.auth.me)).user.id).toBe(id)
    })

    it('is not invited without provisioning, outside the domains, or while unverified', async () => {
      const { provider: _, signIn, memberships, change, client } = await setUp({ autoProvision: false })
      const providers = (await client.call(api.ssoProviders.list)).data
      const { id } = providers.find((one) => one.status === 'active')!
      const reason = async (who: object = gus) => errorIn((await signIn(who as typeof gus)).location)
      expect(await reason()).toBe('no_org_access')
      await change(id, { autoProvision: true })
      expect(await reason()).toBe('default_role_required')
      await change(id, { defaultRoleId: viewer, allowedDomains: 'bakery.example.com' })
      expect(await reason()).toBe('domain_not_allowed')
      await change(id, { allowedDomains: null })
      expect(await reason({ ...gus, email_verified: false })).toBe('sso_email_unverified')
      expect(await memberships()).toEqual([])
      expect(await reason()).toBe('invitation_pending')
    })

    it.each([
      ['of a system administrator', { is_system: 1 }],
      ['that is disabled', { status: 'disabled' }],
      ['that was never used', { status: 'invited', password_hash: null }],
      ['that was never proved', { email_proved_at: null }],
    ])('%s gets the same answers, and its account is left unchanged', async (_what, set) => {
      const { service, client, signIn, id, memberships, setAccount, world } = await setUp()
      await setAccount(set)
      const row = () =>
        service.storage.read.selectFrom('users').selectAll().where('id', '=', id).executeTakeFirst()
      const [account, admin] = [await row(), service.client(world.tokens.garage)]
      const seen = () => admin.call(api.users.show, { params: { id } })
      const before = await seen()
      for (const _ of [1, 2]) expect(errorIn((await signIn(gus)).location)).toBe('invitation_pending')
      expect(await memberships()).toMatchObject([{ accepted_at: null, disabled_at: null }])
      expect(await row()).toEqual(account)
      expect(await seen()).toEqual(before)
      const params = { id }
      expect(await client.call(api.users.show, { params })).toMatchObject({
        status: 'invited',
        name: gus.name,
      })
      const change = (status: 'active' | 'disabled') =>
        client.call(api.users.change, { params, body: { status } })
      await expect(change('active')).rejects.toMatchObject({
        status: 409,
        message: 'The invitation waits for its holder: nobody else can accept it',
      })
      await expect(client.call(api.users.resetMfa, { params })).rejects.toMatchObject({
        status: 403,
        message: 'This account belongs to other tenants as well',
      })
      const list = async (status: 'active' | 'invited' | 'disabled') =>
        (await client.call(api.users.list, { query: { status } })).data.map((one) => one.id).includes(id)
      expect([await list('active'), await list('invited'), await list('disabled')]).toEqual([
        false,
        true,
        false,
      ])
      expect(await change('disabled')).toMatchObject({ status: 'disabled' })
      expect(errorIn((await signIn(gus)).location)).toBe('no_org_access')
      expect(await client.call(api.users.remove, { params })).toEqual({ success: true })
      expect(await row()).toEqual(account)
    })

    it('keeps the invitation links of other tenants', async () => {
      const { service, client, signIn, world, garage } = await setUp()
      const garageAdmin = service.client(world.tokens.garage)
      const invited = { email: 'new@garage.example.com', name: 'New' }
      const sent = await garageAdmin.call(api.users.invite, { body: { ...invited, roleId: viewer } })
      const who = { sub: 'new', email: invited.email, name: 'Told' }
      expect(errorIn((await signIn(who)).location)).toBe('invitation_pending')
      const params = { id: sent.id }
      expect(await client.call(api.users.show, { params })).toMatchObject({ name: 'Told' })
      expect(await garageAdmin.call(api.users.show, { params })).toMatchObject({
        name: 'New',
        mfaEnabled: false,
      })
      const again = await garageAdmin.call(api.users.resendInvite, { body: { userId: sent.id } })
      const token = new URL(again.inviteUrl!).searchParams.get('token')!
      const { tokens } = await service.client().call(api.auth.acceptInvite, { body: { token, password } })
      const me = service.client(tokens!.accessToken)
      expect(await me.call(api.users.me)).toMatchObject({ orgId: garage.id })
      // A user who saw the link does not necessarily own the mailbox.
      const [waits] = (await me.call(api.users.myInvitations)).data
      await expect(me.call(api.users.acceptMine, { body: { orgId: waits!.orgId! } })).rejects.toMatchObject({
        code: 'email_unproved',
      })
    })
  })
})
