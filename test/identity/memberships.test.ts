import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { organizationScope, type Scope, systemScope } from '../../src/core/scope.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { findUserByEmail } from '../../src/identity/store.ts'
import { isWhollyInScope } from '../../src/identity/users/account-scope.ts'
import { listMembershipRecords } from '../../src/identity/users/memberships.ts'
import { membersOf } from '../../src/identity/users/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addOrgUser, buildWorld, roleOf, type World } from '../world.ts'

/** The user stores enforce the scope themselves, independently of the checks of a handler. */
onEveryDatabase((_kind, open) => {
  let service: TestService
  let world: World
  let wanda: string
  let ofBakery: Scope
  let ofAcme: Scope

  beforeEach(async () => {
    service = await startService(open)
    world = await buildWorld(service)
    const { bakery, harbor } = world.orgs
    await addOrgUser(service, 'wanda', bakery.id)
    wanda = (await findUserByEmail(service.storage.read, 'wanda@example.com'))!.id
    const now = new Date().toISOString()
    await service.storage.write(async (tx) => {
      const none = { siteIds: null, groupIds: null }
      await joinOrganization(
        tx,
        { orgId: harbor.id, userId: wanda, roleId: roleOf('Org Viewer', 'organization'), ...none },
        now,
      )
      const roleId = roleOf('Partner Viewer', 'partner')
      await joinPartner(tx, { partnerId: world.partners.globex, userId: wanda, roleId, orgs: 'all' }, now)
    })
    ofBakery = organizationScope(bakery.id)
    ofAcme = { kind: 'partner', partnerId: world.partners.acme, orgs: 'all' }
  })

  describe('a user of several tenants', () => {
    it('is shown with the memberships of the scope only', async () => {
      const held = async (scope: Scope) =>
        (await listMembershipRecords(service.storage.read, scope, [wanda])).map(({ tenant }) => tenant)
      const bakery = { kind: 'organization', orgId: world.orgs.bakery.id }
      expect(await held(ofBakery)).toEqual([bakery])
      expect(await held(ofAcme)).toEqual([bakery])
      expect(await held(systemScope)).toHaveLength(3)
    })

    it('is not wholly within the scope of either tenant', async () => {
      const within = (scope: Scope) => isWhollyInScope(service.storage.read, scope, { id: wanda })
      expect(await within(ofBakery)).toBe(false)
      expect(await within(ofAcme)).toBe(false)
      expect(await within(systemScope)).toBe(true)
    })

    it('is listed and shown to each administrator as a user of their own tenant only', async () => {
      const seenBy = (token: string) => {
        const client = service.client(token)
        return Promise.all([
          client.call(api.users.show, { params: { id: wanda } }),
          client.call(api.users.list, { query: { q: 'wanda' } }),
        ])
      }
      const foreign = (reply: unknown, ...ids: string[]) =>
        ids.filter((id) => JSON.stringify(reply).includes(id))
      const { bakery, harbor } = world.orgs
      expect(foreign(await seenBy(world.tokens.bakery), harbor.id, world.partners.globex)).toEqual([])
      expect(foreign(await seenBy(world.tokens.harbor), bakery.id, world.partners.acme)).toEqual([])
    })
  })

  it('a tenant outside the scope has no visible members', async () => {
    const members = async (scope: Scope, orgId: string) =>
      (await membersOf(service.storage.read, scope, { kind: 'organization', orgId }).selectAll().execute())
        .length
    const { bakery, harbor } = world.orgs
    expect(await members(ofBakery, bakery.id)).toBeGreaterThan(0)
    expect(await members(ofBakery, harbor.id)).toBe(0)
    expect(await members(ofAcme, harbor.id)).toBe(0)
    expect(await members(systemScope, harbor.id)).toBeGreaterThan(0)
  })
})
