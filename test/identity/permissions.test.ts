import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { permissionOf } from '../../src/core/permissions.ts'
import { builtInRoles } from '../../src/identity/seeds.ts'
import { findUserByEmail } from '../../src/identity/store.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld, tokenFor } from '../world.ts'

const builtIn = (name: string, scope = 'organization') =>
  builtInRoles.find((one) => one.name === name && one.scope === scope)!.id

inTurn((open) => {
  const begin = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = (token: keyof typeof world.tokens) => service.client(world.tokens[token])
    const idOf = async (name: string) =>
      (await findUserByEmail(service.storage.read, `${name}@example.com`))!.id
    const canI = (token: keyof typeof world.tokens, action: string, resource: string, more: object = {}) =>
      by(token).call(api.permissions.canI, { query: { action, resource, ...more } })
    return { service, ...world, by, idOf, canI }
  }

  describe('the permission catalog', () => {
    it('lists the permissions of all routes with descriptions, and no wildcards', async () => {
      const { by } = await begin()
      const { permissions, resourceLabels, actionLabels } = await by('bakeryViewer').call(
        api.permissions.catalog,
      )
      expect(permissions).toContainEqual({
        resource: 'devices',
        action: 'execute',
        description: 'Run commands on devices',
      })
      for (const { resource, action, description } of permissions) {
        expect(permissionOf({ resource, action })).toBe(`${resource}:${action}`)
        expect(description).toBeTruthy()
        expect([resource in resourceLabels, action in actionLabels]).toEqual([true, true])
      }
      expect(permissions.some(({ resource, action }) => `${resource}${action}`.includes('*'))).toBe(false)
      const builder = await by('bakery').call(api.roles.available)
      expect(builder.actions).toEqual(['view', 'create', 'update', 'delete', 'execute'])
      expect(builder.resources).toHaveLength(12)
    })
  })

  describe('can-i', () => {
    it('names the role and the permission that grant access', async () => {
      const { canI } = await begin()
      expect(await canI('bakeryViewer', 'read', 'devices')).toMatchObject({
        allowed: true,
        status: null,
        permission: 'devices:read',
        reason: 'The role "Org Viewer" grants devices:read',
        grantedBy: { roleId: builtIn('Org Viewer'), permission: 'devices:read', inherited: false },
        subject: { userName: 'bakery-viewer', roleName: 'Org Viewer', scope: 'organization' },
      })
      expect(await canI('acme', 'update', 'sites')).toMatchObject({
        allowed: true,
        reason: 'The role "Partner Admin" grants sites:write by *:*',
        grantedBy: { permission: '*:*' },
      })
      expect(await canI('bakeryViewer', 'write', 'devices')).toMatchObject({
        allowed: false,
        status: 403,
        code: 'forbidden',
        reason: 'Neither the role "Org Viewer" nor one it inherits from grants devices:write',
        grantedBy: null,
      })
      expect(await canI('system', '*', '*')).toMatchObject({ allowed: true, grantedBy: null })
    })

    it('names the ancestor role that grants access, and the role that inherits from it', async () => {
      const { by, canI } = await begin()
      const { id } = await by('bakery').call(api.roles.create, {
        body: { name: 'Night', parentRoleId: builtIn('Org Viewer') },
      })
      expect(await canI('bakery', 'read', 'sites', { roleId: id })).toMatchObject({
        allowed: true,
        reason: 'The role "Org Viewer" grants sites:read, from which "Night" inherits',
        grantedBy: { roleName: 'Org Viewer', inherited: true },
        subject: { userId: null, roleName: 'Night' },
      })
    })

    it('refuses a permission that is not in the catalog', async () => {
      const { canI } = await begin()
      await expect(canI('bakery', 'read', 'remote')).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'query.action', message: 'Unknown permission: remote:read' }],
      })
    })
  })

  describe('can-i for another user', () => {
    it('needs permission to read users, and is limited to the scope of the caller', async () => {
      const { canI, idOf, orgs } = await begin()
      const viewer = await idOf('bakery-viewer')
      const asked = (token: Parameters<typeof canI>[0], more: object) =>
        canI(token, 'write', 'devices', { userId: viewer, ...more })
      for (const token of ['bakery', 'acme', 'system'] as const) {
        expect(await asked(token, {})).toMatchObject({ allowed: false, subject: { userId: viewer } })
      }
      await expect(asked('bakeryAuditor', {})).rejects.toMatchObject({ status: 403, code: 'forbidden' })
      for (const token of ['acmeBakery', 'acmeNone'] as const) {
        await expect(asked(token, {})).rejects.toMatchObject({ code: 'partner_access_limited' })
      }
      for (const token of ['garage', 'harbor', 'globex'] as const) {
        await expect(asked(token, {})).rejects.toMatchObject({ status: 404, message: 'User not found' })
        const byRole = canI(token, 'read', 'devices', { roleId: orgs.bakery.roleId })
        await expect(byRole).rejects.toMatchObject({ status: 404, message: 'Role not found' })
      }
      await expect(asked('acme', { orgId: orgs.garage.id })).rejects.toMatchObject({ status: 404 })
    })

    it('evaluates a hypothetical role', async () => {
      const { canI, idOf } = await begin()
      const userId = await idOf('bakery-viewer')
      const roleId = builtIn('Org Technician')
      expect(await canI('bakery', 'write', 'devices', { userId, roleId })).toMatchObject({
        allowed: true,
        subject: { userName: 'bakery-viewer', roleName: 'Org Technician' },
      })
      const partnerRole = builtIn('Partner Admin', 'partner')
      await expect(canI('bakery', 'read', 'devices', { userId, roleId: partnerRole })).rejects.toMatchObject({
        status: 404,
      })
    })

    it('needs no permission when the other user is the caller', async () => {
      const { canI, idOf } = await begin()
      const userId = await idOf('bakery-viewer')
      expect((await canI('bakeryViewer', 'read', 'devices', { userId })).allowed).toBe(true)
    })
  })

  describe('explain', () => {
    it('distinguishes identity, scope, second factor and enrollment, with a hint for each', async () => {
      const { service, by, idOf, orgs } = await begin()
      const explain = (method: 'GET' | 'POST', path: string, more: object = {}) =>
        by('system').call(api.permissions.explain, { query: { method, path, ...more } })
      const userId = await idOf('bakery-admin')
      expect(await explain('GET', `/api/v1/devices/${orgs.bakery.deviceId}?x=1`, { userId })).toMatchObject({
        allowed: true,
        path: '/devices/:id',
        operation: 'devices.show',
        permission: 'devices:read',
      })
      expect(await explain('POST', '/enrollment-keys', { userId, mfa: 'false' })).toMatchObject({
        allowed: false,
        status: 403,
        code: 'mfa_required',
        hint: 'sign in again with a code: svc login',
      })
      expect(await explain('GET', '/orgs/partners', { userId })).toMatchObject({
        code: 'scope_not_allowed',
        reason: 'It is for system scope, and this is organization scope',
      })
      expect(await explain('POST', '/agents/x/heartbeat', { userId })).toMatchObject({ status: 401 })
      expect(await explain('POST', '/auth/login', { userId })).toMatchObject({
        allowed: true,
        reason: 'It is open to everyone',
      })
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ mfa_method: null }).where('name', '=', 'acme-admin').execute(),
      )
      const admin = { userId: await idOf('acme-admin') }
      expect(await explain('GET', '/devices', admin)).toMatchObject({
        status: 428,
        reason: 'The role "Partner Admin" demands a second factor, and none is enrolled',
        hint: 'svc mfa setup, then svc mfa enable',
      })
      expect((await explain('GET', '/auth/me', admin)).allowed).toBe(true)
    })

    it('respects ENABLE_2FA', async () => {
      const service = await startService(open, { env: { ENABLE_2FA: 'false' } })
      const { partners, tokens } = await buildWorld(service)
      const id = (await findUserByEmail(service.storage.read, 'acme-admin@example.com'))!.id
      const context = { kind: 'partner' as const, partnerId: partners.acme }
      const token = await tokenFor(service, id, context, { mfa: false })
      const query = { method: 'POST' as const, path: '/enrollment-keys' }
      expect((await service.client(token).call(api.permissions.explain, { query })).allowed).toBe(true)
      expect((await service.client(tokens.bakeryViewer).call(api.permissions.explain, { query })).code).toBe(
        'forbidden',
      )
    })
  })
})
