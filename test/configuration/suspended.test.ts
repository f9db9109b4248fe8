import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { addPartnerUser, addRole } from '../world.ts'
import { pruned, startWithHistory } from './history-fixture.ts'

const keys = {
  apiKeys: [{ org: 'florist', name: 'Export', rateLimit: 50 }],
  enrollmentKeys: [{ org: 'florist', name: 'Door' }],
}
const florist = (status?: string) => ({
  organizations: [{ slug: 'florist', name: 'Florist', ...(status && { status }) }],
})

inTurn((open) => {
  const begin = async () => {
    const stage = await startWithHistory(open)
    const { acme } = stage
    await acme.apply(florist())
    const { data } = await acme.client.call(api.orgs.list)
    const orgId = data.find(({ slug }) => slug === 'florist')!.id
    const mint = (name: string) =>
      acme.client.call(api.apiKeys.create, { body: { orgId, name, scopes: ['devices:read'] } })
    const enroll = (name: string) => acme.client.call(api.enrollmentKeys.create, { body: { orgId, name } })
    return { ...stage, orgId, mint, enroll }
  }

  describe('an organization that files suspend', () => {
    it('ends its keys, which the plan says, and leaves them alone while it is suspended', async () => {
      const { acme, mint, enroll } = await begin()
      await mint('Export')
      await enroll('Door')
      await acme.apply({ ...florist(), ...keys }, { adopt: true })
      const files = {
        ...florist('suspended'),
        ...keys,
        apiKeys: [{ ...keys.apiKeys[0]!, rateLimit: 60 }],
      }
      const plan = await acme.plan(files, pruned)
      expect(plan.changes).toMatchObject([
        {
          action: 'update',
          section: 'organizations',
          before: { status: 'active' },
          after: { status: 'suspended' },
          ends: { apiKeys: 1, enrollmentKeys: 1 },
        },
      ])
      // Another key, after the plan.
      await mint('Late')
      await expect(acme.apply(files, pruned, plan.version)).rejects.toMatchObject({ code: 'conflict' })
      const { applyId, changes } = await acme.apply(files, pruned)
      expect(changes).toMatchObject([{ ends: { apiKeys: 2, enrollmentKeys: 1 } }])
      expect(await acme.plan(files, pruned)).toMatchObject({ changes: [], left: [] })
      const lost = [
        {
          section: 'organizations',
          org: null,
          name: 'florist',
          reason: 'does not get back what ended: 2 apiKeys, 1 enrollmentKeys',
        },
      ]
      const back = await acme.planBack(applyId)
      expect(back).toMatchObject({ lost, changes: [{ after: { status: 'active' }, ends: null }] })
      await acme.rollBack(applyId)
      // In use again, it needs others.
      await expect(acme.plan({ ...florist('active'), ...keys })).rejects.toMatchObject({
        details: [
          { path: 'body.document.apiKeys.0', message: expect.stringContaining('has ended') },
          { path: 'body.document.enrollmentKeys.0', message: expect.stringContaining('has ended') },
        ],
      })
    })

    it('takes keys with it in the apply that has them no more', async () => {
      const { acme, mint } = await begin()
      await mint('Export')
      await acme.apply({ ...florist(), apiKeys: keys.apiKeys }, { adopt: true })
      const { changes } = await acme.apply({ ...florist('churned'), apiKeys: [] }, pruned)
      expect(changes).toMatchObject([{ section: 'organizations', ends: { apiKeys: 1 } }])
    })

    it('is not suspended again by a rollback that would end keys which came since', async () => {
      const { acme, mint } = await begin()
      await acme.apply(florist('suspended'))
      const { applyId } = await acme.apply(florist('active'))
      await mint('Late')
      await expect(acme.planBack(applyId)).rejects.toMatchObject({
        code: 'conflict',
        message: expect.stringContaining('1 apiKeys would end with it'),
      })
    })

    it('shows what ends to nobody who may not suspend it', async () => {
      const { service, world, by, acme, mint } = await begin()
      await mint('Export')
      const held = ['config:read', 'organizations:read']
      const role = await addRole(service, { partnerId: world.partners.acme }, 'Reader', held)
      const reader = by(await addPartnerUser(service, 'reader', world.partners.acme, 'all', role))
      const { changes, version } = await reader.plan(florist('suspended'))
      expect(changes).toMatchObject([{ action: 'update', ends: null, refused: expect.any(String) }])
      // It is the version of whoever may.
      expect((await acme.plan(florist('suspended'))).version).toBe(version)
    })
  })
})
