import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import type { TestService } from '../harness.ts'
import { addOrgUser } from '../world.ts'
import { begin, builtIn, create, failing, join, joinAsPartner, named, pairs, update } from './role-helpers.ts'

inTurn((open) => {
  describe('role administration', () => {
    it('lets nobody grant what they do not hold: directly, by a parent, a clone or a change', async () => {
      const { service, admin, orgs, partners } = await begin(open)
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

      // Nobody changes a role that grants more than they hold, itself, by a parent or by a child.
      const beyond = (...names: string[]) =>
        failing(403, `This role grants permissions that you do not hold: ${names.join(', ')}`)
      const high = await create(admin, 'High', ['sites:write', 'devices:read'], { forceMfa: true })
      const heir = await create(admin, 'Heir', [], { parentRoleId: high.id })
      const base = await create(admin, 'Base', ['devices:read'], { forceMfa: true })
      await create(admin, 'Above', ['sites:write'], { parentRoleId: base.id })
      for (const change of [
        { forceMfa: false },
        { permissions: [] },
        { permissions: pairs('sites:write') },
      ]) {
        await expect(update(client, high.id, change)).rejects.toEqual(beyond('sites:write'))
      }
      await expect(update(client, high.id, { name: 'Low' })).rejects.toEqual(beyond('sites:write'))
      await expect(update(client, heir.id, { parentRoleId: null })).rejects.toEqual(beyond('sites:write'))
      await expect(update(client, base.id, { forceMfa: false })).rejects.toEqual(beyond('sites:write'))
      const cleaner = await create(admin, 'Cleaner', ['users:read', 'users:delete'])
      const remover = service.client((await join(service, 'cleaner', orgs.bakery.id, cleaner.id)).token)
      const removal = remover.call(api.roles.remove, { params: { id: heir.id } })
      await expect(removal).rejects.toEqual(beyond('devices:read', 'sites:write'))
      await update(client, id, { forceMfa: true, permissions: [] })
      const chief = service.client(
        (await joinAsPartner(service, 'p', partners.acme, builtIn('Partner Viewer', 'partner'))).token,
      )
      await expect(create(chief, 'x')).rejects.toEqual(failing(403, 'Permission denied'))
    })

    it('lets nobody change the permissions of their own role or of one it inherits from', async () => {
      const { service, admin, orgs } = await begin(open)
      const top = await create(admin, 'Top', ['users:read', 'devices:read'])
      const mine = await create(admin, 'HR', ['users:write'], { parentRoleId: top.id })
      const client = service.client((await join(service, 'hr', orgs.bakery.id, mine.id)).token)
      const own = failing(403, 'You cannot change the permissions of your own role', { code: 'own_role' })
      for (const id of [mine.id, top.id]) {
        await expect(update(client, id, { permissions: pairs('users:write', 'users:read') })).rejects.toEqual(
          own,
        )
        await expect(update(client, id, { forceMfa: true })).rejects.toEqual(own)
      }
      await expect(update(client, mine.id, { parentRoleId: null })).rejects.toEqual(own)
      expect(await update(client, mine.id, { name: 'People' })).toMatchObject({ name: 'People' })
    })

    it('refuses to remove the last administrator of a tenant, by any role of the chain', async () => {
      const { service, system, acme, partners, orgs } = await begin(open)
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

    it('refuses one of two concurrent changes that together remove both administrators', async () => {
      const { service, system, orgs } = await begin(open)
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

  /** An administrator who cannot sign in does not count as one. */
  async function joinAndDisable(service: TestService, orgId: string) {
    await addOrgUser(service, 'gone', orgId)
    await service.storage.write((tx) =>
      tx.updateTable('users').set({ status: 'disabled' }).where('name', '=', 'gone').execute(),
    )
  }
})
