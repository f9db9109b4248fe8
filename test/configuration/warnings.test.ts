import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { addOrgUser, addRole } from '../world.ts'
import { startWithHistory } from './history-fixture.ts'

const wide = {
  name: 'Wide',
  issuer: 'https://token.actions.githubusercontent.com',
  claims: { repository_id: '12' },
  permissions: ['devices:read'],
}
const everyBranch = expect.stringContaining('Every branch')

inTurn((open) => {
  describe('the warning of a single change', () => {
    it('is a part of its line in a plan, and in the apply', async () => {
      const { bakery } = await startWithHistory(open)
      const files = { trustPolicies: [wide] }
      const plan = await bakery.plan(files)
      expect(plan.changes).toMatchObject([{ action: 'create', warning: everyBranch }])
      expect((await bakery.apply(files, {}, plan.version)).changes).toEqual(plan.changes)
      const narrow = { ...wide, claims: { ...wide.claims, environment: 'production' } }
      const { applyId, changes } = await bakery.apply({ trustPolicies: [narrow] })
      expect(changes).toMatchObject([{ action: 'update', warning: null }])
      expect((await bakery.planBack(applyId)).changes).toMatchObject([{ warning: everyBranch }])
    })

    it('is told to nobody who may not make the change', async () => {
      const { service, world, by } = await startWithHistory(open)
      const { id: orgId } = world.orgs.bakery
      const role = await addRole(service, orgId, 'Reader', ['config:read', 'organizations:read'])
      const reader = by(await addOrgUser(service, 'reader', orgId, { role }))
      const { changes } = await reader.plan({ trustPolicies: [wide] })
      expect(changes).toMatchObject([{ refused: expect.any(String), warning: null }])
    })

    it('says how many members a provider does not admit any more, as whoever applies makes it', async () => {
      const { service, world, by, bakery } = await startWithHistory(open)
      const { id: orgId, providerId } = world.orgs.bakery
      await bakery.apply({ ssoProviders: [{ name: 'bakery provider' }] }, { adopt: true })
      const held = [
        'config:read',
        'config:apply',
        'organizations:read',
        'organizations:write',
        'sso:read',
        'sso:write',
      ]
      const role = await addRole(service, orgId, 'Lesser', held)
      const lesser = by(await addOrgUser(service, 'lesser', orgId, { role }))
      const files = { ssoProviders: [{ name: 'bakery provider', scopes: 'openid email' }] }
      const { version, changes } = await lesser.plan(files)
      expect(changes).toMatchObject([{ warning: expect.stringContaining('cannot sign in with it') }])
      // Another caller may have another warning, and the same plan.
      expect((await bakery.plan(files)).version).toBe(version)
      const applied = await lesser.apply(files, {}, version)
      expect(applied.changes).toEqual(changes)
      const shown = await bakery.client.call(api.ssoProviders.show, { params: { id: providerId } })
      expect(shown.warning).toBeTypeOf('string')
    })
  })
})
