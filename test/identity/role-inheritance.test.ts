import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import { inTurn } from '../databases.ts'
import { begin, builtIn, create, failing, join, update } from './role-helpers.ts'

inTurn((open) => {
  describe('role inheritance', () => {
    it('takes effect on the next request, and shows the source of each permission', async () => {
      const { service, admin, orgs } = await begin(open)
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

    it('of Force MFA locks out holders without a factor on their next request', async () => {
      const { service, admin, orgs } = await begin(open)
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

    it('cannot be circular', async () => {
      const { admin } = await begin(open)
      const top = await create(admin, 'Top')
      const low = await create(admin, 'Low', [], { parentRoleId: top.id })
      const circular = failing(400, 'Cannot set parent role: would create circular inheritance', {
        details: [expect.objectContaining({ path: 'body.parentRoleId' })],
      })
      for (const parentRoleId of [low.id, top.id]) {
        await expect(update(admin, top.id, { parentRoleId })).rejects.toEqual(circular)
      }
    })

    it('cannot become circular by concurrent changes', async () => {
      const { admin } = await begin(open)
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

    it('stays within scope and tenant, and within 20 levels', async () => {
      const { admin, acme, orgs } = await begin(open)
      const attempt = (client: Client, parentRoleId: string, more: object = {}) =>
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
})
