import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { ApiError } from '../../src/core/client.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { builtInRoles } from '../../src/identity/seeds.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addOrgUser, addUser, buildWorld, tokenFor } from '../world.ts'

const failing = (status: number, error: string | RegExp, more: object = {}) =>
  expect.objectContaining({
    status,
    message: typeof error === 'string' ? error : expect.stringMatching(error),
    ...more,
  })
const builtIn = (name: string, scope = 'organization') =>
  builtInRoles.find((one) => one.name === name && one.scope === scope)!.id
const pairs = (...names: string[]) =>
  names.map((name) => ({ resource: name.split(':')[0]!, action: name.split(':')[1]! }))
const named = (list: { resource: string; action: string }[]) =>
  list.map(({ resource, action }) => `${resource}:${action}`)

async function join(service: TestService, name: string, orgId: string, roleId: string) {
  const userId = await addUser(service, name)
  const now = new Date().toISOString()
  await service.storage.write((tx) => joinOrganization(tx, { orgId, userId, roleId, siteIds: null }, now))
  return { userId, token: await tokenFor(service, userId, { kind: 'organization', orgId }) }
}

async function joinAsPartner(service: TestService, name: string, partnerId: string, roleId: string) {
  const userId = await addUser(service, name)
  const now = new Date().toISOString()
  await service.storage.write((tx) => joinPartner(tx, { partnerId, userId, roleId, orgs: 'all' }, now))
  return { userId, token: await tokenFor(service, userId, { kind: 'partner', partnerId }) }
}

onEveryDatabase((kind, open) => {
  const begin = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const { tokens } = world
    const [system, acme, bakery] = [tokens.system, tokens.acme, tokens.bakery].map((one) =>
      service.client(one),
    )
    return { service, ...world, system: system!, acme: acme!, admin: bakery! }
  }
  type Admin = Awaited<ReturnType<typeof begin>>['admin']
  const create = (client: Admin, name: string, permissions: string[] = [], more: object = {}) =>
    client.call(api.roles.create, { body: { name, permissions: pairs(...permissions), ...more } })
  const update = (client: Admin, id: string, body: object) =>
    client.call(api.roles.update, { params: { id }, body })

  describe('the list of roles', () => {
    it('has the built-in ones of the scope and the own ones, with who holds them in the tenant', async () => {
      const { admin, acme, system, orgs, partners } = await begin()
      const { data, pagination } = await admin.call(api.roles.list)
      const built = ['Auditor', 'Org Admin', 'Org Technician', 'Org Viewer']
      expect(data.map((one) => one.name)).toEqual([...built, 'bakery role'])
      expect(pagination).toEqual({ page: 1, limit: 50, total: 5 })
      expect(data.map((one) => one.userCount)).toEqual([1, 1, 0, 1, 0])
      expect(data.map((one) => one.isSystem)).toEqual([true, true, true, true, false])
      expect(data.at(-1)).toMatchObject({ orgId: orgs.bakery.id, partnerId: null, scope: 'organization' })

      const ofAcme = (await acme.call(api.roles.list)).data
      expect(ofAcme.map((one) => one.name)).toEqual([
        'Auditor',
        'Partner Admin',
        'Partner Technician',
        'Partner Viewer',
      ])
      expect(ofAcme.find((one) => one.name === 'Partner Admin')).toMatchObject({
        userCount: 3,
        forceMfa: true,
      })
      const ofGarage = await acme.call(api.roles.list, { query: { orgId: orgs.garage.id } })
      expect(ofGarage.data.map((one) => one.name)).toEqual([...built, 'garage role'])
      const asked = await system.call(api.roles.list, { query: { partnerId: partners.globex } })
      expect(asked.data.find((one) => one.name === 'Partner Admin')?.userCount).toBe(1)
    })

    it('comes in pages, and clamps what is out of range', async () => {
      const { admin } = await begin()
      const page = (query: object) => admin.call(api.roles.list, { query })
      const second = await page({ page: 2, limit: 2 })
      expect(second.data.map((one) => one.name)).toEqual(['Org Technician', 'Org Viewer'])
      expect(second.pagination).toEqual({ page: 2, limit: 2, total: 5 })
      expect((await page({ page: 0, limit: 1000 })).pagination).toMatchObject({ page: 1, limit: 100 })
    })

    it('needs a tenant in system scope, and all organizations in partner scope', async () => {
      const { service, system, tokens, orgs } = await begin()
      await expect(system.call(api.roles.list)).rejects.toEqual(
        failing(403, 'Partner or organization context required', { code: 'tenant_required' }),
      )
      for (const token of [tokens.acmeBakery, tokens.acmeNone]) {
        const client = service.client(token)
        const full = failing(403, 'Full partner organization access required')
        await expect(client.call(api.roles.list)).rejects.toEqual(full)
        const params = { id: builtIn('Org Viewer') }
        await expect(client.call(api.roles.show, { params })).rejects.toEqual(full)
        await expect(create(client, 'mine')).rejects.toEqual(full)
        const there = { query: { orgId: orgs.bakery.id } }
        await expect(client.call(api.roles.list, there)).rejects.toEqual(full)
      }
    })

    it('is for those who hold users:read', async () => {
      const { service, tokens } = await begin()
      const viewer = service.client(tokens.bakeryViewer)
      await expect(viewer.call(api.roles.list)).rejects.toEqual(failing(403, 'Permission denied'))
      await expect(viewer.call(api.roles.available)).rejects.toEqual(failing(403, 'Permission denied'))
      expect((await viewer.call(api.permissions.catalog)).permissions).toHaveLength(27)
    })
  })

  describe('a role', () => {
    it('is made with what it grants, the words of the role builder included', async () => {
      const { admin, orgs } = await begin()
      const permissions = ['devices:view', 'devices:execute', 'sites:create', 'sites:update', 'alerts:read']
      const made = await create(admin, 'Night', permissions, { description: 'At night', forceMfa: true })
      expect(made).toMatchObject({
        name: 'Night',
        description: 'At night',
        orgId: orgs.bakery.id,
        isSystem: false,
        forceMfa: true,
        userCount: 0,
        parentRoleId: null,
        parentRoleName: null,
      })
      expect(named(made.permissions)).toEqual([
        'alerts:read',
        'devices:execute',
        'devices:read',
        'sites:write',
      ])
      expect(await admin.call(api.roles.show, { params: { id: made.id } })).toEqual(made)
    })

    it('grants nothing that is not in the catalogue', async () => {
      const { admin } = await begin()
      const refused = (await create(admin, 'x', ['devices:read', 'devices:paint', 'remote:read']).catch(
        (error: ApiError) => error,
      )) as ApiError
      expect(refused).toMatchObject({ status: 400, code: 'invalid_request' })
      expect(refused.details).toEqual([
        { path: 'body.permissions.1', message: 'Unknown permission: devices:paint' },
        { path: 'body.permissions.2', message: 'Unknown permission: remote:read' },
      ])
      await expect(create(admin, 'x', ['devices:*'])).rejects.toMatchObject({ status: 400 })
    })

    it('lives where it was made: others do not find it', async () => {
      const { service, admin, acme, system, tokens, orgs } = await begin()
      const { id } = await create(admin, 'Night', ['devices:read'])
      const show = (client: Admin, query: object = {}) =>
        client.call(api.roles.show, { params: { id }, query })
      for (const token of [tokens.garage, tokens.globex, tokens.harbor]) {
        await expect(show(service.client(token))).rejects.toEqual(failing(404, 'Role not found'))
      }
      const elsewhere = { orgId: orgs.garage.id }
      await expect(show(acme, elsewhere)).rejects.toEqual(failing(404, 'Role not found'))
      for (const client of [admin, acme, system]) expect((await show(client)).name).toBe('Night')
      const made = await create(acme, 'Helpers', ['devices:read'])
      expect(made).toMatchObject({ partnerId: expect.any(String), orgId: null, scope: 'partner' })
      const there = await create(acme, 'Day', ['devices:read'], { orgId: orgs.garage.id })
      expect(there).toMatchObject({ orgId: orgs.garage.id, partnerId: null, scope: 'organization' })
      await expect(create(acme, 'Day', [], { orgId: orgs.harbor.id })).rejects.toMatchObject({
        code: 'org_access_denied',
      })
    })

    it('that is built in is seen by all and changed by nobody', async () => {
      const { system, admin } = await begin()
      const params = { id: builtIn('Org Viewer') }
      expect((await admin.call(api.roles.show, { params })).userCount).toBe(1)
      for (const client of [system, admin]) {
        await expect(update(client, params.id, { name: 'x' })).rejects.toEqual(
          failing(403, 'Cannot modify system roles'),
        )
        await expect(client.call(api.roles.remove, { params })).rejects.toEqual(
          failing(403, 'Cannot delete system roles'),
        )
      }
    })

    it('is changed field by field, and not by nothing', async () => {
      const { admin } = await begin()
      const { id } = await create(admin, 'Night', ['devices:read'], { description: 'x' })
      expect(await update(admin, id, { name: 'Day' })).toMatchObject({ name: 'Day', description: 'x' })
      const after = await update(admin, id, { permissions: pairs('alerts:read'), description: null })
      expect(after).toMatchObject({ name: 'Day', description: null, permissions: pairs('alerts:read') })
      await expect(update(admin, id, {})).rejects.toMatchObject({ status: 400, code: 'invalid_request' })
      const { data } = await admin.call(api.auditLogs.list, { query: { action: 'role.update' } })
      expect(data.find((one) => one.result === 'success')?.details).toMatchObject({
        before: { description: 'x', permissions: ['devices:read'] },
        after: { description: null, permissions: ['alerts:read'] },
        changedFields: ['description', 'permissions'],
      })
    })

    it('is deleted when nobody holds it and nothing inherits from it', async () => {
      const { service, admin, orgs } = await begin()
      const { id } = await create(admin, 'Night', ['devices:read'])
      const remove = () => admin.call(api.roles.remove, { params: { id } })
      const { userId } = await join(service, 'watchman', orgs.bakery.id, id)
      await expect(remove()).rejects.toEqual(
        failing(400, 'Cannot delete role with assigned users', {
          code: 'role_in_use',
          details: { userCount: 1, childRoleCount: 0 },
        }),
      )
      const { data } = await admin.call(api.roles.holders, { params: { id } })
      expect(data).toMatchObject([{ id: userId, name: 'watchman', orgId: orgs.bakery.id, status: 'active' }])
      await service.storage.write((tx) =>
        tx.deleteFrom('organization_memberships').where('user_id', '=', userId).execute(),
      )
      const child = await create(admin, 'Night Lead', [], { parentRoleId: id })
      expect(child.parentRoleName).toBe('Night')
      await expect(remove()).rejects.toEqual(
        failing(400, /^Cannot delete role with assigned users or child roles/, {
          details: { userCount: 0, childRoleCount: 1 },
        }),
      )
      await admin.call(api.roles.remove, { params: { id: child.id } })
      expect(await remove()).toMatchObject({ success: true })
      await expect(remove()).rejects.toEqual(failing(404, 'Role not found'))
    })
  })

  describe('inheritance', () => {
    it('counts on requests, at once, and shows where each permission comes from', async () => {
      const { service, admin, orgs } = await begin()
      const top = await create(admin, 'Top', ['devices:read', 'sites:read'])
      const middle = await create(admin, 'Middle', ['alerts:read', 'devices:read'], { parentRoleId: top.id })
      const low = await create(admin, 'Low', ['sites:read'], { parentRoleId: middle.id })
      const client = service.client((await join(service, 'low', orgs.bakery.id, low.id)).token)
      expect((await client.call(api.devices.list)).data).toHaveLength(1)
      const effective = await admin.call(api.roles.effective, { params: { id: low.id } })
      expect(effective).toEqual({
        roleId: low.id,
        roleName: 'Low',
        forceMfa: false,
        inheritanceChain: [
          { id: middle.id, name: 'Middle' },
          { id: top.id, name: 'Top' },
        ],
        permissions: [
          ['alerts', middle],
          ['devices', middle],
          ['sites', low],
        ].map(([resource, source]) => ({
          resource,
          action: 'read',
          inherited: source !== low,
          sourceRoleId: (source as typeof low).id,
          sourceRoleName: (source as typeof low).name,
        })),
      })
      await update(admin, top.id, { permissions: [] })
      await update(admin, middle.id, { permissions: [] })
      await expect(client.call(api.devices.list)).rejects.toEqual(failing(403, 'Permission denied'))
      await update(admin, low.id, { parentRoleId: builtIn('Org Viewer') })
      expect((await client.call(api.devices.list)).data).toHaveLength(1)
    })

    it('of a Force MFA flag shuts out holders without a factor on their next request', async () => {
      const { service, admin, orgs } = await begin()
      const top = await create(admin, 'Top', ['devices:read'])
      const low = await create(admin, 'Low', [], { parentRoleId: top.id })
      const { userId, token } = await join(service, 'low', orgs.bakery.id, low.id)
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ mfa_method: null }).where('id', '=', userId).execute(),
      )
      const client = service.client(token)
      await client.call(api.devices.list)
      await update(admin, top.id, { forceMfa: true })
      await expect(client.call(api.devices.list)).rejects.toMatchObject({
        status: 428,
        code: 'mfa_enrollment_required',
      })
    })

    it('never goes round in a circle', async () => {
      const { admin } = await begin()
      const top = await create(admin, 'Top')
      const low = await create(admin, 'Low', [], { parentRoleId: top.id })
      const circular = failing(400, 'Cannot set parent role: would create circular inheritance', {
        details: [expect.objectContaining({ path: 'body.parentRoleId' })],
      })
      for (const parentRoleId of [low.id, top.id]) {
        await expect(update(admin, top.id, { parentRoleId })).rejects.toEqual(circular)
      }
    })

    it('does not go round in a circle either when two changes come at once', async () => {
      const { admin } = await begin()
      for (let round = 0; round < 5; round += 1) {
        const made = await Promise.all(['a', 'b', 'c'].map((name) => create(admin, `${name}${round}`)))
        const changes = made.map((one, i) =>
          update(admin, one.id, { parentRoleId: made[(i + 1) % made.length]!.id }),
        )
        const results = await Promise.allSettled(changes)
        expect(results.filter((one) => one.status === 'fulfilled')).toHaveLength(2)
        expect(results.find((one) => one.status === 'rejected')?.reason).toMatchObject({ status: 400 })
      }
    })

    it('stays within the scope and the tenant, and within 20 levels', async () => {
      const { admin, acme, orgs } = await begin()
      const attempt = (client: Admin, parentRoleId: string, more: object = {}) =>
        create(client, 'x', [], { parentRoleId, ...more })
      await expect(attempt(admin, orgs.garage.roleId)).rejects.toEqual(failing(400, 'Parent role not found'))
      await expect(attempt(admin, builtIn('Partner Viewer', 'partner'))).rejects.toEqual(
        failing(400, 'Parent role must be in the same scope'),
      )
      await expect(attempt(acme, orgs.garage.roleId, { orgId: orgs.bakery.id })).rejects.toEqual(
        failing(400, 'Parent role must be of the same tenant'),
      )
      let last = await create(admin, 'level 1')
      for (let level = 2; level <= 20; level += 1) {
        last = await create(admin, `level ${level}`, [], { parentRoleId: last.id })
      }
      await expect(attempt(admin, last.id)).rejects.toMatchObject({ status: 400 })
      const [top, below] = [await create(admin, 'top'), await create(admin, 'below')]
      await update(admin, below.id, { parentRoleId: top.id })
      const under = update(admin, top.id, { parentRoleId: last.id })
      await expect(under).rejects.toMatchObject({ status: 400 })
    })
  })

  describe('a clone', () => {
    it('has everything the role grants, inherited or not, and can be changed', async () => {
      const { admin } = await begin()
      const top = await create(admin, 'Top', ['devices:read'], { forceMfa: true })
      const body = { parentRoleId: top.id, description: 'Low down' }
      const low = await create(admin, 'Low', ['sites:read'], body)
      const copy = await admin.call(api.roles.clone, { params: { id: low.id }, body: { name: 'Copy' } })
      expect(copy).toMatchObject({
        name: 'Copy',
        description: 'Cloned from Low: Low down',
        isSystem: false,
        forceMfa: true,
        parentRoleId: null,
      })
      expect(named(copy.permissions)).toEqual(['devices:read', 'sites:read'])
      await update(admin, copy.id, { permissions: pairs('sites:read') })
    })

    it('of a built-in role goes where it can be held', async () => {
      const { admin, acme, orgs } = await begin()
      const clone = (client: Admin, id: string, body: { name: string; orgId?: string }) =>
        client.call(api.roles.clone, { params: { id }, body })
      const mine = await clone(admin, builtIn('Org Technician'), { name: 'Tech' })
      expect(mine).toMatchObject({ orgId: orgs.bakery.id, isSystem: false })
      const there = await clone(acme, builtIn('Org Admin'), { name: 'Boss', orgId: orgs.garage.id })
      expect(there.orgId).toBe(orgs.garage.id)
      const wildcard = await clone(acme, builtIn('Partner Admin', 'partner'), { name: 'Chief' })
      expect(wildcard).toMatchObject({ permissions: pairs('*:*'), forceMfa: true, scope: 'partner' })
      await expect(clone(acme, builtIn('Org Admin'), { name: 'Boss' })).rejects.toEqual(
        failing(400, /^Invalid role for this scope/),
      )
    })
  })

  describe('nobody', () => {
    it('grants what they do not hold: directly, by a parent, by a clone or by a change', async () => {
      const { service, admin, orgs, partners } = await begin()
      const hr = await create(admin, 'HR', ['users:read', 'users:write', 'devices:read'])
      const client = service.client((await join(service, 'hr', orgs.bakery.id, hr.id)).token)
      const lacking = (...names: string[]) =>
        failing(403, `Cannot assign permission not held by caller: ${names.join(', ')}`)
      await expect(create(client, 'x', ['devices:read', 'sites:write', 'alerts:read'])).rejects.toEqual(
        lacking('alerts:read', 'sites:write'),
      )
      await expect(create(client, 'x', ['*:*'])).rejects.toEqual(lacking('*:*'))
      const auditor = { parentRoleId: builtIn('Auditor') }
      await expect(create(client, 'x', [], auditor)).rejects.toEqual(lacking('audit:export', 'audit:read'))
      const clone = client.call(api.roles.clone, {
        params: { id: builtIn('Auditor') },
        body: { name: 'x' },
      })
      await expect(clone).rejects.toEqual(lacking('audit:export', 'audit:read'))
      const { id } = await create(client, 'Watch', ['devices:read'])
      await expect(update(client, id, auditor)).rejects.toEqual(lacking('audit:export', 'audit:read'))
      const more = { permissions: pairs('devices:read', 'devices:write') }
      await expect(update(client, id, more)).rejects.toEqual(lacking('devices:write'))

      // What a role has already may stay when something else changes.
      const high = await create(admin, 'High', ['sites:write', 'devices:read'])
      expect(await update(client, high.id, { permissions: pairs('sites:write') })).toBeTruthy()
      await expect(update(client, high.id, { permissions: pairs('sites:delete') })).rejects.toEqual(
        lacking('sites:delete'),
      )
      const chief = service.client(
        (await joinAsPartner(service, 'p', partners.acme, builtIn('Partner Viewer', 'partner'))).token,
      )
      await expect(create(chief, 'x')).rejects.toEqual(failing(403, 'Permission denied'))
    })

    it('changes what their own role grants, or one it inherits from, up or down', async () => {
      const { service, admin, orgs } = await begin()
      const top = await create(admin, 'Top', ['users:read', 'devices:read'])
      const mine = await create(admin, 'HR', ['users:write'], { parentRoleId: top.id })
      const client = service.client((await join(service, 'hr', orgs.bakery.id, mine.id)).token)
      const own = failing(403, 'Nobody changes what their own role grants', { code: 'own_role' })
      for (const id of [mine.id, top.id]) {
        await expect(update(client, id, { permissions: pairs('users:write', 'users:read') })).rejects.toEqual(
          own,
        )
        await expect(update(client, id, { forceMfa: true })).rejects.toEqual(own)
      }
      await expect(update(client, mine.id, { parentRoleId: null })).rejects.toEqual(own)
      expect(await update(client, mine.id, { name: 'People' })).toMatchObject({ name: 'People' })
    })

    it('takes the last administrator of a tenant away, by whichever role of the chain', async () => {
      const { service, system, acme, partners, orgs } = await begin()
      const { storage } = service
      const none = (table: 'partner_memberships' | 'organization_memberships') =>
        storage.write((tx) => tx.deleteFrom(table).execute())
      await storage.write((tx) => tx.deleteFrom('partner_membership_orgs').execute())
      await none('partner_memberships')
      await none('organization_memberships')

      const place = { partnerId: partners.acme }
      const top = await create(system, 'Top', ['*:*'], place)
      const low = await create(system, 'Low', [], { ...place, parentRoleId: top.id })
      await joinAsPartner(service, 'chief', partners.acme, low.id)
      const last = failing(409, 'This would leave no administrator', { code: 'last_administrator' })
      await expect(update(system, top.id, { permissions: [] })).rejects.toEqual(last)
      await expect(update(system, low.id, { parentRoleId: null })).rejects.toEqual(last)
      const shown = await system.call(api.roles.effective, { params: { id: low.id } })
      expect(named(shown.permissions)).toEqual(['*:*'])
      await update(system, low.id, { permissions: pairs('*:*') })
      await update(system, top.id, { permissions: [] })
      await expect(acme.call(api.roles.list)).rejects.toMatchObject({ status: 401 })

      const inOrg = { orgId: orgs.bakery.id }
      const boss = await create(system, 'Boss', ['users:write', 'devices:read'], inOrg)
      await joinAndDisable(service, orgs.bakery.id)
      await join(service, 'boss', orgs.bakery.id, boss.id)
      await expect(update(system, boss.id, { permissions: pairs('devices:read') })).rejects.toEqual(last)
      await join(service, 'second', orgs.bakery.id, builtIn('Org Admin'))
      await update(system, boss.id, { permissions: pairs('devices:read') })
    })

    it('takes both of two administrators away at once', async () => {
      const { service, system, orgs } = await begin()
      const orgId = orgs.garage.id
      await service.storage.write((tx) =>
        tx.deleteFrom('organization_memberships').where('org_id', '=', orgId).execute(),
      )
      const roles = await Promise.all(
        ['a', 'b'].map((name) => create(system, name, ['users:write'], { orgId })),
      )
      for (const role of roles) await join(service, `holder ${role.name}`, orgId, role.id)
      const results = await Promise.allSettled(
        roles.map((role) => update(system, role.id, { permissions: [] })),
      )
      expect(results.map((one) => one.status).sort()).toEqual(['fulfilled', 'rejected'])
    })
  })

  /** An administrator who cannot sign in counts for nothing. */
  async function joinAndDisable(service: TestService, orgId: string) {
    await addOrgUser(service, 'gone', orgId)
    await service.storage.write((tx) =>
      tx.updateTable('users').set({ status: 'disabled' }).where('name', '=', 'gone').execute(),
    )
  }

  it('what is listed is found by an index', async () => {
    if (kind === 'postgres') return
    const { storage } = await open()
    const explained = sql<{ detail: string }>`explain query plan select * from roles
      where scope = 'organization' and (is_system = 1 or org_id = 'x') order by name, id`
    const { rows } = await explained.execute(storage.read)
    expect(rows.map((row) => row.detail).join('\n')).not.toMatch(/SCAN roles/)
  })
})
