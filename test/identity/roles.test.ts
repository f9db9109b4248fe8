import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { ApiError, Client } from '../../src/core/client.ts'
import { onEveryDatabase } from '../databases.ts'
import { begin, builtIn, create, failing, join, named, pairs, update } from './role-helpers.ts'

onEveryDatabase((kind, open) => {
  describe('the list of roles', () => {
    it('has the built-in ones of the scope and the own ones, with who holds them in the tenant', async () => {
      const { admin, acme, system, orgs, partners } = await begin(open)
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
      const { admin } = await begin(open)
      const page = (query: object) => admin.call(api.roles.list, { query })
      const second = await page({ page: 2, limit: 2 })
      expect(second.data.map((one) => one.name)).toEqual(['Org Technician', 'Org Viewer'])
      expect(second.pagination).toEqual({ page: 2, limit: 2, total: 5 })
      expect((await page({ page: 0, limit: 1000 })).pagination).toMatchObject({ page: 1, limit: 100 })
    })

    it('is that of every tenant in system scope, and needs all organizations in partner scope', async () => {
      const { service, system, tokens, orgs } = await begin(open)
      const [bakery, garage] = [service.client(tokens.bakery), service.client(tokens.garage)]
      await create(bakery, 'Of the bakery')
      await create(garage, 'Of the garage')
      const all = (await system.call(api.roles.list, { query: { limit: 100 } })).data
      for (const name of ['Of the bakery', 'Of the garage', 'Partner Admin', 'Org Viewer'])
        expect(all.map((one) => one.name)).toContain(name)
      const admins = async (client: typeof system, query = {}) =>
        (await client.call(api.roles.list, { query })).data.find((one) => one.name === 'Org Admin')!.userCount
      expect(await admins(system)).toBeGreaterThan(await admins(system, { orgId: orgs.bakery.id }))
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
      const { service, tokens } = await begin(open)
      const viewer = service.client(tokens.bakeryViewer)
      await expect(viewer.call(api.roles.list)).rejects.toEqual(failing(403, 'Permission denied'))
      await expect(viewer.call(api.roles.available)).rejects.toEqual(failing(403, 'Permission denied'))
      expect((await viewer.call(api.permissions.catalog)).permissions).toHaveLength(29)
    })
  })

  describe('a role', () => {
    it('is made with what it grants, the words of the role builder included', async () => {
      const { admin, orgs } = await begin(open)
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

    it('grants nothing that is not in the catalog', async () => {
      const { admin } = await begin(open)
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
      const { service, admin, acme, system, tokens, orgs } = await begin(open)
      const { id } = await create(admin, 'Night', ['devices:read'])
      const show = (client: Client, query: object = {}) =>
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
      const { system, admin } = await begin(open)
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
      const { admin } = await begin(open)
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
      const { service, admin, orgs } = await begin(open)
      const { id } = await create(admin, 'Night', ['devices:read'])
      const remove = () => admin.call(api.roles.remove, { params: { id } })
      const { userId } = await join(service, 'watchman', orgs.bakery.id, id)
      await expect(remove()).rejects.toEqual(
        failing(400, 'Cannot delete role with assigned users', {
          code: 'role_in_use',
          details: { userCount: 1, childRoleCount: 0, providerCount: 0 },
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
        failing(400, 'Cannot delete role that is in use: 1 role inherits from it', {
          details: { userCount: 0, childRoleCount: 1, providerCount: 0 },
        }),
      )
      await admin.call(api.roles.remove, { params: { id: child.id } })
      expect(await remove()).toMatchObject({ success: true })
      await expect(remove()).rejects.toEqual(failing(404, 'Role not found'))
    })
  })

  describe('a clone', () => {
    it('has everything the role grants, inherited or not, and can be changed', async () => {
      const { admin } = await begin(open)
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
      const { admin, acme, orgs } = await begin(open)
      const clone = (client: Client, id: string, body: { name: string; orgId?: string }) =>
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

  it.runIf(kind === 'sqlite')('what is listed is found by an index', async () => {
    const { storage } = await open()
    const explained = sql<{ detail: string }>`explain query plan select * from roles
      where scope = 'organization' and (is_system = 1 or org_id = 'x') order by name, id`
    const { rows } = await explained.execute(storage.read)
    expect(rows.map((row) => row.detail).join('\n')).not.toMatch(/SCAN roles/)
  })
})
