import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { addOrgUser, addPartnerUser, addRole } from '../world.ts'
import { pruned, startWithHistory } from './history-fixture.ts'

onEveryDatabase((_, open) => {
  const begin = async () => {
    const stage = await startWithHistory(open)
    const { service, world, acme } = stage
    const mint = async (token: string, orgId: string, scopes = ['devices:read']) => {
      const body = { orgId, name: `of ${token.slice(-9)}`, scopes }
      const { key } = await service.client(token).call(api.apiKeys.create, { body })
      const client = service.client(undefined, { 'x-api-key': key })
      return async () => (await client.call(api.devices.list, {})).data.length
    }
    const reader = async (held: string[]) => {
      const role = await addRole(service, { partnerId: world.partners.acme }, 'Reader', [
        'config:read',
        ...held,
      ])
      return stage.by(await addPartnerUser(service, 'reader', world.partners.acme, 'all', role))
    }
    return { ...stage, bakeryId: world.orgs.bakery.id, mint, reader, acme }
  }

  describe('API keys of a member', () => {
    const member = (values: object) => ({
      memberships: [{ org: 'bakery', email: 'maker@example.com', ...values }],
    })

    it('stop with the membership, which the plan says, and work again once it is accepted again', async () => {
      const { service, acme, bakeryId, mint, reader } = await begin()
      const planner = await reader(['users:read', 'roles:read', 'organizations:read'])
      const maker = await addOrgUser(service, 'maker', bakeryId)
      const use = await mint(maker, bakeryId)
      await acme.apply(member({ role: 'Org Admin' }), { adopt: true })
      const gone = { memberships: [] }
      const { changes, version } = await acme.plan(gone, pruned)
      expect(changes).toMatchObject([{ action: 'delete', ends: { apiKeys: 1, limitedApiKeys: 0 } }])
      // It is the version of whoever may not do it, who is not told.
      const refused = await planner.plan(gone, pruned)
      expect(refused).toMatchObject({ version, changes: [{ ends: null, refused: expect.any(String) }] })
      await mint(maker, bakeryId)
      await expect(acme.apply(gone, pruned, version)).rejects.toMatchObject({ code: 'conflict' })
      expect(await use()).toBeGreaterThan(0)
      const { applyId } = await acme.apply(gone, pruned)
      await expect(use()).rejects.toMatchObject({ status: 403 })
      expect((await acme.planBack(applyId)).lost).toMatchObject([
        { reason: 'is invited again, and has to accept' },
      ])
    })

    it('do less with a smaller role or reach, and the plan tells which from which', async () => {
      const { service, acme, bakeryId, mint } = await begin()
      const maker = await addOrgUser(service, 'maker', bakeryId)
      await mint(maker, bakeryId)
      await mint(maker, bakeryId, ['devices:read', 'devices:write'])
      await acme.apply(
        { sites: [{ org: 'bakery', name: 'Annex' }], ...member({ role: 'Org Admin' }) },
        { adopt: true },
      )
      const plan = async (values: object) => (await acme.plan(member(values))).changes
      expect(await plan({ role: 'Org Viewer' })).toMatchObject([{ ends: { limitedApiKeys: 1 } }])
      const roles = [{ org: 'bakery', name: 'Nothing', permissions: [] }]
      const { changes } = await acme.plan({ roles, ...member({ role: 'Nothing' }) })
      expect(changes).toMatchObject([{ ends: null }, { ends: { apiKeys: 2 } }])
      expect(await plan({ role: 'Org Admin', sites: ['Annex'] })).toMatchObject([
        { ends: { limitedApiKeys: 2 } },
      ])
      const { applyId } = await acme.apply(member({ role: 'Org Viewer', sites: ['Annex'] }))
      const back = await acme.planBack(applyId)
      expect(back).toMatchObject({ lost: [], changes: [{ ends: null }, { ends: null }] })
    })

    it('stop with access to an organization through its partner, and of no other', async () => {
      const { service, world, acme, bakeryId, mint } = await begin()
      const maker = await addPartnerUser(service, 'maker', world.partners.acme, 'all')
      await mint(maker, bakeryId)
      const of = (access: object) => ({
        memberships: [{ email: 'maker@example.com', role: 'Partner Admin', ...access }],
      })
      await acme.apply(of({ orgAccess: 'all' }), { adopt: true })
      const plan = async (access: object) => (await acme.plan(of(access))).changes
      expect(await plan({ orgAccess: 'selected', orgs: ['bakery'] })).toMatchObject([{ ends: null }])
      expect(await plan({ orgAccess: 'none' })).toMatchObject([{ ends: { apiKeys: 1 } }])
    })

    it('do less with a role that loses permissions, and a rollback of a role takes them away again', async () => {
      const { service, acme, bakeryId, mint } = await begin()
      const role = (permissions: string[]) => ({ roles: [{ org: 'bakery', name: 'Maker', permissions }] })
      const held = ['devices:read', 'devices:write', 'organizations:read', 'organizations:write']
      const id = await addRole(service, bakeryId, 'Maker', held)
      const maker = await addOrgUser(service, 'maker', bakeryId, { role: id })
      await mint(maker, bakeryId, ['devices:read', 'devices:write'])
      await acme.apply(role(held), { adopt: true })
      const narrowed = await acme.apply(role(['devices:read']))
      expect(narrowed.changes).toMatchObject([{ ends: { limitedApiKeys: 1 } }])
      const { applyId, changes } = await acme.apply(role(held))
      expect(changes).toMatchObject([{ ends: null }])
      const back = await acme.rollBack(applyId)
      expect(back).toMatchObject({ lost: [], changes: [{ ends: { limitedApiKeys: 1 } }] })
    })

    it('are counted to nobody who may not list them', async () => {
      const { service, acme, by, world, bakeryId, mint } = await begin()
      const maker = await addOrgUser(service, 'maker', bakeryId)
      await mint(maker, bakeryId)
      await acme.apply(member({ role: 'Org Admin' }), { adopt: true })
      const held = ['config:read', 'users:read', 'users:write', 'users:delete', 'roles:read', 'devices:read']
      const role = await addRole(service, bakeryId, 'People', held)
      const people = by(await addOrgUser(service, 'people', world.orgs.bakery.id, { role }))
      const { changes } = await people.plan({ memberships: [] }, pruned)
      expect(JSON.stringify(changes)).not.toContain('apiKeys')
    })
  })
})
