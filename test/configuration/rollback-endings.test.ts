import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { addPartnerUser, addRole } from '../world.ts'
import { pruned, startWithHistory } from './history-fixture.ts'

inTurn((open) => {
  describe('a rollback', () => {
    it('deletes no static group that has members since, as files that delete one show them', async () => {
      const { world, acme, bakery } = await startWithHistory(open)
      const group = { org: 'bakery', name: 'Tills' }
      const { applyId } = await acme.apply({ deviceGroups: [group] })
      const { data } = await bakery.client.call(api.deviceGroups.list, {})
      const params = { id: data.find(({ name }) => name === 'Tills')!.id }
      const body = { deviceIds: [world.orgs.bakery.deviceId] }
      await bakery.client.call(api.deviceGroups.add, { params, body })
      const conflict = {
        code: 'conflict',
        message: expect.stringContaining('1 groupMembers would end with it'),
      }
      await expect(acme.planBack(applyId)).rejects.toMatchObject(conflict)
      expect((await acme.plan({ deviceGroups: [] }, pruned)).changes).toMatchObject([
        { action: 'delete', name: 'Tills', ends: { groupMembers: 1 } },
      ])
      await bakery.client.call(api.deviceGroups.take, { params, body })
      expect((await acme.rollBack(applyId)).totals.delete).toBe(1)
    })

    it('counts what ends with an organization to nobody who may not delete it', async () => {
      const { service, world, by, acme } = await startWithHistory(open)
      const { applyId } = await acme.apply({ organizations: [{ slug: 'florist', name: 'Florist' }] })
      const orgs = await acme.client.call(api.orgs.list)
      const { id: orgId } = orgs.data.find(({ slug }) => slug === 'florist')!
      const { id, key } = await acme.client.call(api.enrollmentKeys.create, { body: { orgId, name: 'k' } })
      const machine = { ...api.agents.enroll.example, enrollmentKey: key }
      await service.client().call(api.agents.enroll, { body: machine })
      await acme.client.call(api.enrollmentKeys.remove, { params: { id } })
      await expect(acme.planBack(applyId)).rejects.toMatchObject({
        code: 'conflict',
        message: expect.stringContaining('1 devices would end with it'),
      })
      const role = await addRole(service, { partnerId: world.partners.acme }, 'Planner', [
        'config:read',
        'config:apply',
        'organizations:read',
      ])
      const planner = by(await addPartnerUser(service, 'planner', world.partners.acme, 'all', role))
      const plan = await planner.planBack(applyId)
      expect(plan.changes).toMatchObject([{ action: 'delete', ends: null, refused: expect.any(String) }])
      await expect(planner.rollBack(applyId, plan.version)).rejects.toMatchObject({ status: 403 })
    })
  })
})
