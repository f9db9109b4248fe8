import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { addOrgUser, addPartnerUser } from '../world.ts'
import { pruned, startWithHistory } from './history-fixture.ts'

const [read, write] = ['devices:read', 'devices:write']

inTurn((open) => {
  const begin = async () => {
    const stage = await startWithHistory(open)
    const { service, world } = stage
    const mint = (token: string, orgId: string, scopes = [read]) =>
      service.client(token).call(api.apiKeys.create, { body: { orgId, name: 'K', scopes } })
    return { ...stage, mint, bakeryId: world.orgs.bakery.id }
  }
  const maker = (role: string) => ({
    memberships: [{ org: 'bakery', email: 'maker@example.com', role }],
  })
  const key = (values: object = {}) => ({ apiKeys: [{ org: 'bakery', name: 'K', ...values }] })

  describe('what a plan takes from API keys', () => {
    it('outdates the plan when it is something else by then', async () => {
      const { service, acme, bakeryId, mint } = await begin()
      const token = await addOrgUser(service, 'maker', bakeryId)
      const { id } = await mint(token, bakeryId)
      await acme.apply(maker('Org Admin'), { adopt: true })
      const { version, changes } = await acme.plan(maker('Org Viewer'))
      expect(changes).toMatchObject([{ ends: null }])
      await service.client(token).call(api.apiKeys.update, { params: { id }, body: { scopes: [write] } })
      await expect(acme.apply(maker('Org Viewer'), {}, version)).rejects.toMatchObject({ code: 'conflict' })
      expect((await acme.plan(maker('Org Viewer'))).changes).toMatchObject([{ ends: { apiKeys: 1 } }])
    })

    it('is not counted for a key that the files end, nor with its organization once more', async () => {
      const { service, world, acme, bakeryId, mint } = await begin()
      await mint(await addOrgUser(service, 'maker', bakeryId), bakeryId, [read, write])
      await acme.apply({ ...maker('Org Admin'), ...key() }, { adopt: true })
      const { changes } = await acme.plan({ ...maker('Org Viewer'), apiKeys: [] }, pruned)
      expect(changes).toMatchObject([
        { section: 'memberships', ends: null },
        { section: 'apiKeys', action: 'delete' },
      ])
      await acme.apply({ organizations: [{ slug: 'florist', name: 'Florist' }] }, { set: 'tenants' })
      const { data } = await acme.client.call(api.orgs.list, {})
      const florist = data.find(({ slug }) => slug === 'florist')!
      await mint(await addPartnerUser(service, 'guest', world.partners.acme, 'all'), florist.id)
      const guest = { email: 'guest@example.com', role: 'Partner Admin' }
      const access = (orgAccess: string) => ({ memberships: [{ ...guest, orgAccess }] })
      await acme.apply(access('all'), { adopt: true, set: 'tenants' })
      const gone = await acme.plan({ ...access('none'), organizations: [] }, { ...pruned, set: 'tenants' })
      const counts = gone.changes.map(({ section, ends }) => [section, ends?.apiKeys ?? 0])
      expect(Object.fromEntries(counts)).toMatchObject({ memberships: 0, organizations: 1 })
    })

    it('is what is left once the files have changed the key itself', async () => {
      const { service, acme, bakeryId, mint } = await begin()
      const made = await mint(await addOrgUser(service, 'maker', bakeryId), bakeryId, [write])
      await acme.apply({ ...maker('Org Admin'), ...key({ scopes: [write] }) }, { adopt: true })
      const { changes } = await acme.apply({ ...maker('Org Viewer'), ...key({ scopes: [read] }) })
      expect(changes[0]).toMatchObject({ section: 'memberships', ends: { limitedApiKeys: 1 } })
      const byKey = service.client(undefined, { 'x-api-key': made.key })
      expect((await byKey.call(api.devices.list, {})).data).not.toEqual([])
    })
  })
})
