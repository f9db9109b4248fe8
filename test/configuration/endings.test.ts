import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { insertRequested } from '../../src/webhooks/deliveries/requested.ts'
import { inTurn } from '../databases.ts'
import { endpointsOf, issuer, oidc } from '../sso/provider-fixture.ts'
import { addOrgUser, addPartnerUser, addRole } from '../world.ts'
import { pruned, startWithHistory } from './history-fixture.ts'

const never = {
  operator: 'AND',
  conditions: [{ field: 'hostname', operator: 'equals', value: 'nobody' }],
}

inTurn((open) => {
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
      const { service, acme, bakeryId, mint, reader } = await begin()
      const role = (permissions: string[]) => ({ roles: [{ org: 'bakery', name: 'Maker', permissions }] })
      const held = ['devices:read', 'devices:write', 'organizations:read', 'organizations:write']
      const id = await addRole(service, bakeryId, 'Maker', held)
      const maker = await addOrgUser(service, 'maker', bakeryId, { role: id })
      await mint(maker, bakeryId, ['devices:read', 'devices:write'])
      await acme.apply(role(held), { adopt: true })
      // Whoever may not change the role has the same plan for whoever may.
      const other = await reader(['users:read', 'roles:read', 'organizations:read'])
      const { version } = await other.plan(role(['devices:read']))
      const narrowed = await acme.apply(role(['devices:read']), {}, version)
      expect(narrowed.changes).toMatchObject([{ ends: { limitedApiKeys: 1 } }])
      const { applyId, changes } = await acme.apply(role(held))
      expect(changes).toMatchObject([{ ends: null }])
      const back = await acme.rollBack(applyId)
      expect(back).toMatchObject({ lost: [], changes: [{ ends: { limitedApiKeys: 1 } }] })
    })

    it('are counted once for all that an apply changes, and not at all where it gives back what it takes', async () => {
      const { service, acme, bakeryId, mint } = await begin()
      const [read, write, run] = ['devices:read', 'devices:write', 'devices:execute']
      const role = (called: string, permissions: string[], parent: string | null = null) => ({
        org: 'bakery',
        name: called,
        permissions,
        parent,
      })
      const own = role('Child', [read], 'Parent')
      await acme.apply({ roles: [role('Parent', [write, run]), own] })
      const maker = await addOrgUser(service, 'maker', bakeryId)
      await mint(maker, bakeryId, [read, write, run])
      await acme.apply({ ...member({ role: 'Child' }) }, { adopt: true })
      const endsOf = async (files: Parameters<typeof acme.plan>[0]) =>
        Object.fromEntries((await acme.plan(files)).changes.map((change) => [change.name, change.ends]))
      const moved = role('Child', [read, write, run], 'Parent')
      expect(await endsOf({ roles: [role('Parent', []), moved] })).toEqual({ Parent: null, Child: null })
      const fewer = { roles: [role('Parent', [run]), role('Child', [], 'Parent')] }
      expect(await endsOf(fewer)).toEqual({ Parent: null, Child: { limitedApiKeys: 1 } })
      const other = { roles: [role('Parent', []), own], ...member({ role: 'Org Admin' }) }
      expect(await endsOf(other)).toEqual({ Parent: null, 'maker@example.com': null })
      const gone = { roles: [role('Parent', [write]), own], ...member({ role: 'Nothing' }) }
      gone.roles.push(role('Nothing', []))
      expect(await endsOf(gone)).toEqual({ Parent: null, Nothing: null, 'maker@example.com': { apiKeys: 1 } })
    })

    it('are counted to nobody who may not list them', async () => {
      const { service, bakery, by, world, bakeryId, mint } = await begin()
      const maker = await addOrgUser(service, 'maker', bakeryId)
      await mint(maker, bakeryId)
      // Of a role that whoever lists no keys may take from them.
      const roles = [{ org: 'bakery', name: 'Small', permissions: ['devices:read'] }]
      await bakery.apply({ roles, ...member({ role: 'Small' }) }, { adopt: true })
      const held = ['config:read', 'users:read', 'users:write', 'users:delete', 'roles:read', 'devices:read']
      const role = await addRole(service, bakeryId, 'People', held)
      const people = by(await addOrgUser(service, 'people', world.orgs.bakery.id, { role }))
      const { changes } = await people.plan({ memberships: [] }, pruned)
      expect(changes).toMatchObject([{ action: 'delete', refused: null, ends: null }])
      expect((await bakery.plan({ memberships: [] }, pruned)).changes).toMatchObject([
        { ends: { apiKeys: 1 } },
      ])
    })
  })

  describe('an organization that a rollback makes again', () => {
    it('is said to lose what ended with it, but for what is made again', async () => {
      const { service, acme } = await begin()
      const email = 'guest@example.com'
      const member = { org: 'florist', email, name: 'Guest', role: 'Org Viewer' }
      await acme.apply({
        organizations: [{ slug: 'florist', name: 'Florist' }],
        sites: [{ org: 'florist', name: 'Store' }],
        memberships: [member],
      })
      const { data } = await acme.client.call(api.orgs.list)
      const orgId = data.find(({ slug }) => slug === 'florist')!.id
      await acme.client.call(api.sites.create, { body: { orgId, name: 'By hand' } })
      const { key } = await acme.client.call(api.enrollmentKeys.create, { body: { orgId, name: 'Door' } })
      const machine = { ...api.agents.enroll.example, enrollmentKey: key }
      await service.client().call(api.agents.enroll, { body: machine })
      await addOrgUser(service, 'florist', orgId)
      const none = { organizations: [], sites: [], memberships: [] }
      const { applyId } = await acme.apply(none, pruned)
      const { lost } = await acme.planBack(applyId)
      expect(lost).toMatchObject([
        {
          section: 'organizations',
          name: 'florist',
          reason: 'does not get back what ended: 1 devices, 1 enrollmentKeys, 1 members, 1 sites',
        },
        { section: 'memberships', reason: 'is invited again, and has to accept' },
      ])
    })

    it('outdates the plan when as much ends with another one', async () => {
      const { acme } = await begin()
      await acme.apply({
        organizations: [
          { slug: 'aa', name: 'A' },
          { slug: 'bb', name: 'B' },
        ],
      })
      const orgs = (await acme.client.call(api.orgs.list)).data
      const [a, b] = ['aa', 'bb'].map((name) => orgs.find(({ slug }) => slug === name)!.id)
      const { id } = await acme.client.call(api.sites.create, { body: { orgId: a!, name: 'Precious' } })
      const { version, changes } = await acme.plan({ organizations: [] }, pruned)
      expect(changes.map(({ name, ends }) => [name, ends!.sites])).toEqual([
        ['aa', 1],
        ['bb', 0],
      ])
      await acme.client.call(api.sites.remove, { params: { id } })
      await acme.client.call(api.sites.create, { body: { orgId: b!, name: 'Other' } })
      await expect(acme.apply({ organizations: [] }, pruned, version)).rejects.toMatchObject({ status: 409 })
    })

    it('is selected by nobody any more who had selected it', async () => {
      const { acme } = await begin()
      const guest = {
        email: 'guest@example.com',
        name: 'Guest',
        role: 'Partner Viewer',
        orgAccess: 'selected',
        orgs: ['florist'],
      }
      await acme.apply({ organizations: [{ slug: 'florist', name: 'Florist' }], memberships: [guest] })
      const gone = { organizations: [] }
      const { applyId, changes } = await acme.apply(gone, pruned)
      expect(changes).toMatchObject([{ action: 'delete', ends: { selections: 1 } }])
      expect((await acme.planBack(applyId)).lost).toMatchObject([
        { reason: 'does not get back what ended: 1 selections' },
      ])
    })
  })

  describe('what is pruned', () => {
    it('ends the pins of a dynamic group, which no filter finds again', async () => {
      const { world, acme, bakery } = await begin()
      const filters = [{ org: 'bakery', name: 'Nobody', conditions: never }]
      const group = { org: 'bakery', name: 'Kept', type: 'dynamic', filter: 'Nobody' }
      const made = await acme.apply({ filters, deviceGroups: [group] })
      const { data } = await bakery.client.call(api.deviceGroups.list, {})
      const { id } = data.find(({ name }) => name === 'Kept')!
      const { deviceId } = world.orgs.bakery
      await bakery.client.call(api.deviceGroups.pin, { params: { id, deviceId } })
      await expect(acme.planBack(made.applyId)).rejects.toMatchObject({
        message: expect.stringContaining('1 groupMembers would end with it'),
      })
      const { applyId, changes } = await acme.apply({ deviceGroups: [] }, pruned)
      expect(changes).toMatchObject([{ action: 'delete', ends: { groupMembers: 1 } }])
      expect((await acme.planBack(applyId)).lost).toMatchObject([
        { reason: 'does not get back what ended: 1 groupMembers' },
      ])
    })

    it('ends the deliveries of a webhook that are still to be made, without outdating the plan', async () => {
      const { service, world, acme } = await begin()
      const { id: orgId, webhookId } = world.orgs.bakery
      const deliver = () => {
        const now = new Date().toISOString()
        const about = {
          id: newId(),
          webhookId,
          orgId,
          event: 'patch.failed',
          eventId: newId(),
          payload: {},
          now,
        }
        return service.storage.write((tx) => insertRequested(tx, about as never))
      }
      await deliver()
      await acme.apply({ webhooks: [{ org: 'bakery', name: 'bakery webhook' }] }, { adopt: true })
      const gone = { webhooks: [] }
      const { changes, version } = await acme.plan(gone, pruned)
      expect(changes).toMatchObject([{ action: 'delete', ends: { pendingDeliveries: 1 } }])
      await deliver()
      const { applyId, changes: done } = await acme.apply(gone, pruned, version)
      expect(done).toMatchObject([{ ends: { pendingDeliveries: 2 } }])
      expect((await acme.planBack(applyId)).lost).toMatchObject([
        { reason: expect.stringContaining('2 pendingDeliveries') },
      ])
    })
  })

  describe('an identity provider', () => {
    const provider = (values: object) => ({
      ssoProviders: [{ org: 'bakery', name: 'bakery provider', ...values }],
    })
    const signedIn = async () => {
      const stage = await begin()
      const { service, world, acme, bakeryId } = stage
      const { providerId } = world.orgs.bakery
      const token = await addOrgUser(service, 'person', bakeryId)
      const set = (table: 'sessions' | 'sso_providers', values: object, where: [string, unknown]) =>
        service.storage.write((tx) =>
          tx
            .updateTable(table)
            .set(values)
            .where(where[0] as never, '=', where[1] as never)
            .execute(),
        )
      await acme.apply(provider({}), { adopt: true })
      await set('sso_providers', { status: 'active' }, ['id', providerId])
      const { id } = await service.client(token).call(api.users.me, {})
      await set('sessions', { sso_provider_id: providerId }, ['user_id', id])
      const me = () => service.client(token).call(api.users.me, {})
      return { ...stage, me }
    }

    it('that is no longer active, or is pruned, ends the sessions that began at it', async () => {
      const { acme, me } = await signedIn()
      const gone = await acme.plan({ ssoProviders: [] }, pruned)
      expect(gone.changes).toMatchObject([{ action: 'delete', ends: { sessions: 1 } }])
      await me()
      const { changes } = await acme.apply(provider({ status: 'inactive' }))
      expect(changes).toMatchObject([{ after: { status: 'inactive' }, ends: { sessions: 1 } }])
      await expect(me()).rejects.toMatchObject({ status: 401 })
    })

    it('that is made active and enforced ends the sessions that began with a password', async () => {
      const { service, acme, bakeryId, reader } = await begin()
      const token = await addOrgUser(service, 'person', bakeryId)
      const { name: _, ...whole } = { ...oidc, ...endpointsOf(issuer) }
      await acme.apply(provider(whole), { adopt: true })
      await service.storage.write((tx) => tx.updateTable('sso_providers').set({ enforce_sso: 1 }).execute())
      const { applyId, changes } = await acme.apply(provider({ status: 'active' }))
      expect(changes).toMatchObject([{ ends: { sessions: expect.any(Number) } }])
      await expect(service.client(token).call(api.users.me, {})).rejects.toMatchObject({ status: 401 })
      const lost = /does not get back what ended: \d+ sessions/
      expect((await acme.planBack(applyId)).lost).toMatchObject([{ reason: expect.stringMatching(lost) }])
      // How many people have signed in is for those who may list them.
      const other = await reader(['sso:read', 'organizations:read', 'organizations:write'])
      expect((await other.planBack(applyId)).lost).toMatchObject([{ reason: 'does not get back what ended' }])
    })
  })

  describe('a member whose selected organizations are gone', () => {
    const guest = { email: 'guest@example.com', role: 'Partner Viewer', orgAccess: 'selected' }

    it('is exported, taken over, changed and made again', async () => {
      const { service, world, acme } = await begin()
      const { id } = await acme.client.call(api.orgs.create, { body: { slug: 'florist', name: 'Florist' } })
      await addPartnerUser(service, 'guest', world.partners.acme, [id], 'Partner Viewer')
      await acme.client.call(api.orgs.remove, { params: { id } })
      const all = (await acme.exported()).document.memberships!
      const memberships = all.filter(({ email }) => email === guest.email)
      expect(memberships).toMatchObject([{ ...guest, orgs: [] }])
      const { changes } = await acme.apply({ memberships }, { adopt: true })
      expect(changes).toMatchObject([{ action: 'adopt', refused: null }])
      expect((await acme.plan({ memberships })).changes).toEqual([])
      const { applyId } = await acme.apply({ memberships: [] }, pruned)
      const back = await acme.rollBack(applyId)
      expect(back.changes).toMatchObject([{ action: 'create', after: { orgAccess: 'none' } }])
      const unlike = { ...guest, email: 'new@example.com', name: 'New', orgs: [] }
      await expect(acme.plan({ memberships: [unlike] })).rejects.toMatchObject({ code: 'invalid_request' })
    })
  })

  describe('a member who was disabled', () => {
    it('is not invited again by the rollback of what removed them', async () => {
      const { acme, bakery } = await begin()
      const viewer = { org: 'bakery', email: 'bakery-viewer@example.com', role: 'Org Viewer' }
      await acme.apply({ memberships: [viewer] }, { adopt: true })
      const { data } = await bakery.client.call(api.users.list, {})
      const { id } = data.find(({ email }) => email === viewer.email)!
      await bakery.client.call(api.users.change, { params: { id }, body: { status: 'disabled' } })
      const { applyId } = await acme.apply({ memberships: [] }, pruned)
      expect(await acme.planBack(applyId)).toMatchObject({
        changes: [],
        lost: [{ name: viewer.email, reason: 'is not made again, as it was disabled' }],
      })
      await acme.rollBack(applyId)
      const after = (await bakery.client.call(api.users.list, {})).data
      expect(after.some(({ email }) => email === viewer.email)).toBe(false)
    })
  })
})
