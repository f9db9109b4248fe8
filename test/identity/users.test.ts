import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { acceptMembership } from '../../src/identity/memberships.ts'
import { findUserByEmail } from '../../src/identity/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { adminPassword, serviceOn, startService, type TestService } from '../harness.ts'
import {
  addOrgUser,
  addPartnerUser,
  addRole,
  buildWorld,
  roleOf,
  systemToken,
  tokenFor,
  type World,
} from '../world.ts'
import { lettersOf, unsent } from './mail.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

/** Takes promises that have already started, so that no rejection goes unhandled. */
async function expectRefused(tries: Promise<unknown>[], why: object): Promise<void> {
  const reasons = (await Promise.allSettled(tries)).map((one) =>
    one.status === 'rejected' ? one.reason : one,
  )
  expect(reasons).toEqual(reasons.map(() => expect.objectContaining(why)))
}

onEveryDatabase((kind, open) => {
  let service: TestService
  let world: World

  beforeEach(async () => {
    service = await startService(open, { outside: { mailer: unsent(false) } })
    world = await buildWorld(service)
  })

  const idOf = async (name: string) =>
    (await findUserByEmail(service.storage.read, `${name}@example.com`))!.id
  const as = (token: string) => service.client(token)
  const names = (reply: { data: { name: string }[] }) => reply.data.map(({ name }) => name)
  const bakeryRoles = () => ({
    admin: roleOf('Org Admin', 'organization'),
    viewer: roleOf('Org Viewer', 'organization'),
  })
  const alive = (token: string) => as(token).call(api.users.me)

  describe('the profile of a user', () => {
    it('is shown to them, and they can change its name and picture', async () => {
      const me = as(world.tokens.bakeryViewer)
      expect(await me.call(api.users.me)).toMatchObject({
        name: 'bakery-viewer',
        scope: 'organization',
        orgId: world.orgs.bakery.id,
        partnerId: null,
        permissions: expect.arrayContaining([{ resource: 'devices', action: 'read' }]),
        isPlatformAdmin: false,
      })
      const body = { name: 'Vera', avatarUrl: 'https://example.com/v.png' }
      expect(await me.call(api.users.changeMe, { body })).toMatchObject(body)
      expect(await me.call(api.users.changeMe, { body: { avatarUrl: null } })).toMatchObject({
        name: 'Vera',
        avatarUrl: null,
      })
    })

    it('accepts only http addresses of pictures, and no empty change', async () => {
      const me = as(world.tokens.bakeryViewer)
      const change = (body: object) => me.call(api.users.changeMe, { body })
      for (const avatarUrl of ['javascript:alert(1)', 'data:image/png;base64,aa', 'nowhere', '']) {
        await expect(change({ avatarUrl })).rejects.toMatchObject({
          status: 400,
          details: [{ path: 'body.avatarUrl' }],
        })
      }
      await expect(change({})).rejects.toMatchObject({ status: 400, message: 'No updates provided' })
    })
  })

  describe('the list of users', () => {
    it('contains the own organization, sorted by name, with roles and restrictions', async () => {
      const { data, pagination } = await as(world.tokens.bakery).call(api.users.list)
      expect(data.map(({ name }) => name)).toEqual(['bakery-admin', 'bakery-auditor', 'bakery-viewer'])
      expect(pagination).toEqual({ page: 1, limit: 50, total: 3 })
      expect(data[0]).toMatchObject({
        email: 'bakery-admin@example.com',
        status: 'active',
        roleName: 'Org Admin',
        orgId: world.orgs.bakery.id,
        partnerId: null,
        orgAccess: null,
        siteIds: null,
        deviceGroupIds: null,
        mfaEnabled: true,
        lastLoginAt: null,
      })
      expect(JSON.stringify(data)).not.toMatch(/hash|secret|phoneNumber/i)
    })

    it('of a partner contains its own people, or those of an organization it reaches', async () => {
      const acme = as(world.tokens.acme)
      const { data } = await acme.call(api.users.list)
      expect(data.map(({ name, orgAccess }) => [name, orgAccess])).toEqual([
        ['acme-admin', 'all'],
        ['acme-none', 'none'],
        ['acme-some', 'selected'],
      ])
      expect(data[2]?.orgIds).toEqual([world.orgs.bakery.id])
      expect(names(await acme.call(api.users.list, { query: { orgId: world.orgs.garage.id } }))).toEqual([
        'garage-admin',
      ])
      const foreign = acme.call(api.users.list, { query: { orgId: world.orgs.harbor.id } })
      await expect(foreign).rejects.toEqual(failing(403, 'org_access_denied'))
      const other = acme.call(api.users.list, { query: { partnerId: world.partners.globex } })
      await expect(other).rejects.toEqual(failing(403, 'partner_mismatch'))
    })

    it('of the system contains everybody, or one tenant', async () => {
      const system = as(world.tokens.system)
      expect((await system.call(api.users.list)).pagination.total).toBe(10)
      const { acme } = world.partners
      expect(names(await system.call(api.users.list, { query: { partnerId: acme } }))).toHaveLength(3)
      const query = { orgId: world.orgs.harbor.id }
      expect(names(await system.call(api.users.list, { query }))).toEqual(['harbor-admin'])
    })

    it('can be searched by name and email, filtered by status and paged', async () => {
      const bakery = as(world.tokens.bakery)
      const find = async (query: object) => names(await bakery.call(api.users.list, { query }))
      expect(await find({ q: 'VIEW' })).toEqual(['bakery-viewer'])
      expect(await find({ q: '@example' })).toHaveLength(3)
      expect(await find({ q: '%' })).toEqual([])
      expect(await find({ limit: 1, page: 2 })).toEqual(['bakery-auditor'])
      const params = { id: await idOf('bakery-viewer') }
      await bakery.call(api.users.change, { params, body: { status: 'disabled' } })
      expect(await find({ status: 'disabled' })).toEqual(['bakery-viewer'])
      expect(await find({ status: 'active' })).toEqual(['bakery-admin', 'bakery-auditor'])
      expect(await find({ status: 'invited' })).toEqual([])
    })

    it('comes with the roles of the scope', async () => {
      const { data } = await as(world.tokens.bakery).call(api.users.roles)
      expect(data.map(({ name }) => name)).toEqual([
        'Auditor',
        'Org Admin',
        'Org Technician',
        'Org Viewer',
        'bakery role',
      ])
      const partner = await as(world.tokens.acme).call(api.users.roles)
      expect(new Set(partner.data.map(({ scope }) => scope))).toEqual(new Set(['partner']))
    })
  })

  describe('a user', () => {
    it('is shown with all memberships in the scope of the caller, and to nobody else', async () => {
      const id = await idOf('bakery-viewer')
      const shown = await as(world.tokens.acme).call(api.users.show, { params: { id } })
      expect(shown).toMatchObject({ name: 'bakery-viewer', roleName: 'Org Viewer', phoneNumber: null })
      expect(shown.memberships).toHaveLength(1)
      for (const token of [world.tokens.garage, world.tokens.globex]) {
        const asked = as(token).call(api.users.show, { params: { id } })
        await expect(asked).rejects.toMatchObject({ status: 404, message: 'User not found' })
      }
    })

    it('of a partner is administered only by partner users with access to all organizations', async () => {
      const params = { id: await idOf('bakery-viewer') }
      for (const token of [world.tokens.acmeBakery, world.tokens.acmeNone]) {
        const tries = [
          as(token).call(api.users.list),
          as(token).call(api.users.show, { params }),
          as(token).call(api.users.change, { params, body: { name: 'x' } }),
          as(token).call(api.users.remove, { params }),
        ]
        await expectRefused(tries, {
          status: 403,
          code: 'partner_access_limited',
          message: 'Full partner organization access required',
        })
        await expect(alive(token)).resolves.toBeDefined()
      }
    })

    it('is renamed and disabled by an administrator; disabling ends all sessions at once', async () => {
      const bakery = as(world.tokens.bakery)
      const params = { id: await idOf('bakery-viewer') }
      await alive(world.tokens.bakeryViewer)
      const renamed = await bakery.call(api.users.change, { params, body: { name: 'Viv' } })
      expect(renamed).toMatchObject({ name: 'Viv', status: 'active' })
      const body = { status: 'disabled' } as const
      expect(await bakery.call(api.users.change, { params, body })).toMatchObject({ status: 'disabled' })
      await expect(alive(world.tokens.bakeryViewer)).rejects.toEqual(failing(401, 'invalid_token'))
      await bakery.call(api.users.change, { params, body: { status: 'active' } })
      await expect(alive(world.tokens.bakeryViewer)).rejects.toEqual(failing(401, 'invalid_token'))
      const orgId = world.orgs.bakery.id
      const again = await tokenFor(service, params.id, { kind: 'organization', orgId })
      await expect(alive(again)).resolves.toMatchObject({ name: 'Viv' })
      await expect(bakery.call(api.users.change, { params, body: {} })).rejects.toMatchObject({ status: 400 })
    })

    it('who is disabled or removed is refused by every replica', async () => {
      const replica = kind === 'postgres' ? await serviceOn(service) : service
      const there = (token: string) => replica.client(token).call(api.users.me)
      const { bakeryViewer, bakeryAuditor, bakery } = world.tokens
      for (const token of [bakeryViewer, bakeryAuditor]) await there(token)
      const viewer = { params: { id: await idOf('bakery-viewer') } }
      await as(bakery).call(api.users.change, { ...viewer, body: { status: 'disabled' } })
      await as(bakery).call(api.users.remove, { params: { id: await idOf('bakery-auditor') } })
      for (const token of [bakeryViewer, bakeryAuditor]) {
        await expect(there(token)).rejects.toEqual(failing(401, 'invalid_token'))
      }
    })

    it('appears in the audit log of the organization with who changed what', async () => {
      const bakery = as(world.tokens.bakery)
      const params = { id: await idOf('bakery-viewer') }
      await bakery.call(api.users.change, { params, body: { name: 'Viv', status: 'disabled' } })
      const { data } = await bakery.call(api.auditLogs.list, { query: { action: 'user.update' } })
      expect(data[0]).toMatchObject({
        action: 'user.update',
        resource: { name: 'bakery-viewer@example.com' },
      })
      const entry = await bakery.call(api.auditLogs.show, { params: { id: data[0]!.id } })
      expect(JSON.stringify(entry)).toContain('"before":{"name":"bakery-viewer","status":"active"}')
      expect(JSON.stringify(entry)).toContain('"after":{"name":"Viv","status":"disabled"}')
    })

    it('of several tenants is disabled in one without losing the others', async () => {
      const id = await idOf('bakery-viewer')
      const { garage, bakery } = world.orgs
      await service.storage.write((tx) =>
        tx
          .insertInto('organization_memberships')
          .values({
            id: 'm-harbor',
            org_id: world.orgs.harbor.id,
            user_id: id,
            role_id: bakeryRoles().viewer,
            narrowed: 0,
            grouped: 0,
            created_at: '2026-01-01T00:00:00.000Z',
            disabled_at: null,
            accepted_at: '2026-01-01T00:00:00.000Z',
            accepted_by: 'holder',
          })
          .execute(),
      )
      const there = await tokenFor(service, id, { kind: 'organization', orgId: world.orgs.harbor.id })
      const admin = as(world.tokens.bakery)
      const change = (body: object) => admin.call(api.users.change, { params: { id }, body })
      expect(await change({ status: 'disabled' })).toMatchObject({ status: 'disabled' })
      await expect(alive(world.tokens.bakeryViewer)).rejects.toEqual(failing(401, 'invalid_token'))
      await expect(alive(there)).resolves.toMatchObject({ status: 'active' })
      const fresh = await tokenFor(service, id, { kind: 'organization', orgId: bakery.id })
      await expect(alive(fresh)).rejects.toEqual(failing(403, 'account_inactive'))
      expect(names(await admin.call(api.users.list, { query: { status: 'disabled' } }))).toEqual([
        // Of an account that other tenants share, only what the inviter typed is shown.
        'bakery-viewer@example.com',
      ])
      // This tenant cannot change the name or the account itself.
      await expect(change({ name: 'Mine' })).rejects.toEqual(failing(403, 'forbidden'))
      const reset = admin.call(api.users.resetMfa, { params: { id } })
      await expect(reset).rejects.toEqual(failing(403, 'forbidden'))
      expect(await change({ status: 'active' })).toMatchObject({ status: 'active' })
      const back = await tokenFor(service, id, { kind: 'organization', orgId: bakery.id })
      await expect(alive(back)).resolves.toBeDefined()
      // The system disables the account as a whole.
      const system = as(world.tokens.system)
      await system.call(api.users.change, { params: { id }, body: { status: 'disabled' } })
      await expect(change({ status: 'active' })).rejects.toEqual(failing(409, 'conflict'))
      await expect(alive(there)).rejects.toEqual(failing(401, 'invalid_token'))
      expect(garage.id).not.toBe(bakery.id)
    })

    it('cannot sign in to a tenant in which the membership is disabled', async () => {
      const id = await idOf('bakery-viewer')
      const { hashPassword } = await import('../../src/identity/password-hash.ts')
      const passwordHash = await hashPassword(adminPassword)
      await service.storage.write(async (tx) => {
        const set = { password_hash: passwordHash, mfa_method: null }
        await tx.updateTable('users').set(set).where('id', '=', id).execute()
        const disabled = { disabled_at: '2026-01-01T00:00:00.000Z' }
        await tx.updateTable('organization_memberships').set(disabled).where('user_id', '=', id).execute()
      })
      const body = { email: 'bakery-viewer@example.com', password: adminPassword }
      const login = service.client().call(api.auth.login, { body })
      await expect(login).rejects.toEqual(failing(401, 'invalid_credentials'))
    })

    it('loses membership and sessions when removed, and keeps account and other memberships', async () => {
      const id = await idOf('bakery-viewer')
      const acme = as(world.tokens.acme)
      const body = {
        email: 'bakery-viewer@example.com',
        name: 'Same',
        orgId: world.orgs.garage.id,
        roleId: bakeryRoles().viewer,
      }
      await acme.call(api.users.invite, { body })
      const there = await tokenFor(service, id, { kind: 'organization', orgId: world.orgs.garage.id })
      const unclear = acme.call(api.users.remove, { params: { id } })
      await expect(unclear).rejects.toMatchObject({ status: 400, details: [{ path: 'query.orgId' }] })
      expect(await as(world.tokens.bakery).call(api.users.remove, { params: { id } })).toEqual({
        success: true,
      })
      await expect(alive(world.tokens.bakeryViewer)).rejects.toEqual(failing(401, 'invalid_token'))
      await expect(alive(there)).resolves.toBeDefined()
      await expect(as(world.tokens.bakery).call(api.users.remove, { params: { id } })).rejects.toEqual(
        failing(404, 'not_found'),
      )
      await as(world.tokens.garage).call(api.users.remove, { params: { id } })
      expect(await findUserByEmail(service.storage.read, 'bakery-viewer@example.com')).toMatchObject({
        id,
        status: 'active',
      })
    })

    it('gets another role of the same scope at once', async () => {
      const params = { id: await idOf('bakery-viewer') }
      const bakery = as(world.tokens.bakery)
      const list = () => as(world.tokens.bakeryViewer).call(api.users.list)
      await expect(list()).rejects.toEqual(failing(403, 'forbidden'))
      const give = (roleId: string) => bakery.call(api.users.assignRole, { params, body: { roleId } })
      expect(await give(bakeryRoles().admin)).toEqual({ success: true })
      expect(names(await list())).toContain('bakery-viewer')
      for (const roleId of [roleOf('Partner Viewer', 'partner'), world.orgs.garage.roleId, params.id]) {
        await expect(give(roleId)).rejects.toMatchObject({
          status: 400,
          message: 'Invalid role for this scope',
          details: [{ path: 'body.roleId' }],
        })
      }
    })

    it('is signed out by an administrator, who can also reset the factors', async () => {
      const params = { id: await idOf('bakery-viewer') }
      const bakery = as(world.tokens.bakery)
      await bakery.call(api.users.signOut, { params })
      await expect(alive(world.tokens.bakeryViewer)).rejects.toEqual(failing(401, 'invalid_token'))
      const orgId = world.orgs.bakery.id
      const token = await tokenFor(service, params.id, { kind: 'organization', orgId })
      expect(await alive(token)).toMatchObject({ mfaEnabled: true })
      await bakery.call(api.users.resetMfa, { params })
      await expect(alive(token)).rejects.toEqual(failing(401, 'invalid_token'))
      const fresh = await tokenFor(service, params.id, { kind: 'organization', orgId })
      expect(await alive(fresh)).toMatchObject({ mfaEnabled: false, mfaMethod: null })
      expect(await lettersOf(service)).toMatchObject([
        { kind: 'factors-changed', to: 'bakery-viewer@example.com' },
      ])
    })
  })

  describe('an administrator', () => {
    it('cannot change their own role, access or status, or remove themself', async () => {
      const params = { id: await idOf('acme-admin') }
      const acme = as(world.tokens.acme)
      const tries = [
        acme.call(api.users.assignRole, { params, body: { roleId: roleOf('Partner Viewer', 'partner') } }),
        acme.call(api.users.changeAccess, { params, body: { orgAccess: 'none' } }),
        acme.call(api.users.change, { params, body: { status: 'disabled' } }),
        acme.call(api.users.remove, { params }),
        acme.call(api.users.resetMfa, { params }),
      ]
      await expectRefused(tries, { status: 403, code: 'forbidden' })
      await expect(alive(world.tokens.acme)).resolves.toBeDefined()
    })

    it('grants nothing they do not hold, inherited permissions included', async () => {
      const { id: orgId } = world.orgs.bakery
      const people = ['users:read', 'users:write', 'users:delete', 'users:invite']
      const clerk = await addRole(service, orgId, 'Clerk', people)
      const child = await addRole(service, orgId, 'Child', [], bakeryRoles().viewer)
      const token = await addOrgUser(service, 'clerk', orgId, { role: clerk })
      const params = { id: await idOf('bakery-auditor') }
      const touch = as(token).call(api.users.assignRole, { params, body: { roleId: clerk } })
      await expect(touch).rejects.toMatchObject({
        code: 'forbidden',
        details: { lacking: ['audit:export', 'audit:read'] },
      })
      for (const roleId of [bakeryRoles().admin, child]) {
        const body = { email: 'new@example.com', name: 'New', roleId }
        const invited = as(token).call(api.users.invite, { body })
        await expect(invited).rejects.toEqual(failing(403, 'forbidden'))
      }
      expect(await findUserByEmail(service.storage.read, 'new@example.com')).toBeUndefined()
    })

    it('cannot change someone who holds more', async () => {
      const { id: orgId } = world.orgs.bakery
      const people = ['users:read', 'users:write', 'users:delete', 'users:invite']
      const clerk = await addRole(service, orgId, 'Clerk', people)
      const low = as(await addOrgUser(service, 'clerk', orgId, { role: clerk }))
      await addOrgUser(service, 'second-admin', orgId)
      const params = { id: await idOf('bakery-admin') }
      const tries = [
        low.call(api.users.change, { params, body: { status: 'disabled' } }),
        low.call(api.users.change, { params, body: { name: 'x' } }),
        low.call(api.users.remove, { params }),
        low.call(api.users.assignRole, { params, body: { roleId: clerk } }),
        low.call(api.users.resetMfa, { params }),
        low.call(api.users.signOut, { params }),
        low.call(api.users.changeAccess, { params, body: { siteIds: [] } }),
      ]
      await expectRefused(tries, { status: 403, code: 'forbidden' })
    })

    it('of the system is out of reach of a tenant they are a member of', async () => {
      const id = await idOf('admin')
      await as(world.tokens.system).call(api.users.invite, {
        body: {
          email: 'admin@example.com',
          name: 'A',
          partnerId: world.partners.acme,
          roleId: roleOf('Partner Viewer', 'partner'),
          orgAccess: 'all' as const,
        },
      })
      const acme = as(world.tokens.acme)
      const partner = { kind: 'partner', partnerId: world.partners.acme } as const
      const account = () =>
        service.storage.read.selectFrom('users').selectAll().where('id', '=', id).executeTakeFirst()
      const before = await account()
      // The tenant can change an open invitation like any other; it does not learn whom it is for.
      expect(await acme.call(api.users.change, { params: { id }, body: { name: 'x' } })).toMatchObject({
        name: 'x',
      })
      expect(await account()).toEqual(before)
      const now = new Date().toISOString()
      await service.storage.write((tx) => acceptMembership(tx, id, partner, 'holder', now))
      for (const body of [{ status: 'disabled' as const }, { name: 'x' }]) {
        await expect(acme.call(api.users.change, { params: { id }, body })).rejects.toEqual(
          failing(403, 'forbidden'),
        )
      }
      expect(await account()).toEqual(before)
    })

    it('who is the last one cannot be removed, demoted, restricted or disabled', async () => {
      const params = { id: await idOf('bakery-admin') }
      const acme = as(world.tokens.acme)
      const refused = failing(409, 'last_administrator')
      const viewer = { roleId: bakeryRoles().viewer }
      const tries = [
        acme.call(api.users.remove, { params }),
        acme.call(api.users.assignRole, { params, body: viewer }),
        acme.call(api.users.changeAccess, { params, body: { siteIds: [world.orgs.bakery.siteId] } }),
        acme.call(api.users.change, { params, body: { status: 'disabled' } }),
        acme.call(api.users.change, { params, body: { status: 'invited' } }),
      ]
      await expectRefused(tries, { status: 409, code: 'last_administrator' })
      // Someone who is only invited does not count.
      const body = { email: 'next@example.com', name: 'Next', roleId: bakeryRoles().admin }
      const next = await as(world.tokens.bakery).call(api.users.invite, { body })
      await expect(acme.call(api.users.remove, { params })).rejects.toEqual(refused)
      const orgId = world.orgs.bakery.id
      const activate = { params: { id: next.id }, query: { orgId }, body: { status: 'active' as const } }
      await acme.call(api.users.change, activate)
      expect(await acme.call(api.users.remove, { params })).toEqual({ success: true })
    })

    it('of a partner counts as one only with access to all organizations', async () => {
      await addPartnerUser(service, 'half', world.partners.globex, [world.orgs.harbor.id])
      const params = { id: await idOf('globex-admin') }
      const demote = () =>
        as(world.tokens.system).call(api.users.assignRole, {
          params,
          body: { roleId: roleOf('Partner Viewer', 'partner') },
        })
      await expect(demote()).rejects.toEqual(failing(409, 'last_administrator'))
      const half = { params: { id: await idOf('half') }, body: { orgAccess: 'all' as const } }
      await as(world.tokens.globex).call(api.users.changeAccess, half)
      expect(await demote()).toEqual({ success: true })
    })

    it('of the system cannot disable themself', async () => {
      const own = { params: { id: await idOf('admin') }, body: { status: 'disabled' as const } }
      const changing = as(await systemToken(service)).call(api.users.change, own)
      await expect(changing).rejects.toMatchObject({
        status: 403,
        message: 'You cannot change your own status',
      })
    })

    it('is always left when two remove each other at the same time', async () => {
      const { id: orgId } = world.orgs.bakery
      for (let round = 0; round < 5; round += 1) {
        const [a, b] = [`left-${round}`, `right-${round}`]
        const tokens = [await addOrgUser(service, a, orgId), await addOrgUser(service, b, orgId)]
        const ids = [await idOf(a), await idOf(b)]
        // Only the two are left.
        await service.storage.write((tx) =>
          tx
            .deleteFrom('organization_memberships')
            .where('org_id', '=', orgId)
            .where('user_id', 'not in', ids)
            .execute(),
        )
        const results = await Promise.allSettled([
          as(tokens[0]!).call(api.users.remove, { params: { id: ids[1]! } }),
          as(tokens[1]!).call(api.users.change, { params: { id: ids[0]! }, body: { status: 'disabled' } }),
        ])
        expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      }
    })
  })
})
