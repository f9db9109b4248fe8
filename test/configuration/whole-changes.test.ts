import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { unsent } from '../identity/mail.ts'
import { buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const grace = { email: 'grace@example.com', name: 'Grace', role: 'Partner Viewer' }

/** A change shows everything that it changes, of references with one name and of what an endpoint decides besides. */
inTurn((open) => {
  const start = async () => {
    const service = await startService(open, { outside: { mailer: unsent(false) } })
    const world = await buildWorld(service)
    const by = configurationOf(service)
    const acme = by(world.tokens.acme)
    const rollBack = async (id: string) => {
      const params = { id }
      const { version, changes } = await acme.client.call(api.configurationApplies.plan, { params, body: {} })
      const done = await acme.client.call(api.configurationApplies.rollback, { params, body: { version } })
      return { changes, applyId: done.applyId }
    }
    return { service, world, acme, bakery: by(world.tokens.bakery), rollBack }
  }

  describe('a reference to another object of the same name', () => {
    it('is told apart where a role of one name has taken the place of a built-in one', async () => {
      const { bakery } = await start()
      const files = { memberships: [{ email: 'ada@example.com', name: 'Ada', role: 'Org Viewer' }] }
      await bakery.apply(files)
      const body = { name: 'Org Viewer', permissions: [{ resource: 'users', action: 'write' } as const] }
      const role = await bakery.client.call(api.roles.create, { body })
      const { changes } = await bakery.plan(files)
      expect(changes).toMatchObject([
        {
          action: 'update',
          before: { role: 'Org Viewer (built-in)' },
          after: { role: `Org Viewer (id ${role.id})` },
        },
      ])
    })

    it('is told apart where files exchange names', async () => {
      const { acme } = await start()
      const role = (name: string, permissions: string[], more = {}) => ({
        org: 'bakery',
        name,
        permissions,
        ...more,
      })
      const member = { org: 'bakery', email: 'hal@example.com', name: 'Hal', role: 'Helpdesk' }
      await acme.apply({
        roles: [role('Helpdesk', ['devices:read']), role('Admins', ['devices:write'])],
        memberships: [member],
      })
      const files = {
        roles: [role('Helpdesk', ['devices:write'], { renamedFrom: 'Admins' })],
        memberships: [member],
      }
      const { changes } = await acme.plan(files, { prune: true, pruneLimit: 10 })
      const [change] = changes.filter(({ section }) => section === 'memberships')
      expect(change!.before).toEqual({ role: expect.stringMatching(/^\w+ \(id [0-9a-f-]{36}\)$/) })
      expect(change!.after).toEqual({ role: expect.stringMatching(/^Helpdesk \(id [0-9a-f-]{36}\)$/) })
      expect(change!.after).not.toEqual(change!.before)
    })
  })

  describe('an organization with a new slug and a new retention', () => {
    it('is known by its slug to the rest of the files, also where slugs are exchanged, and goes back', async () => {
      const { acme, rollBack } = await start()
      const retention = (retentionDays: number) => ({ auditRetention: { retentionDays } })
      await acme.apply({
        organizations: [
          { slug: 'one', name: 'One' },
          { slug: 'two', name: 'Two' },
        ],
      })
      const files = {
        organizations: [
          { slug: 'two', renamedFrom: 'one', name: 'One', ...retention(50) },
          { slug: 'one', renamedFrom: 'two', name: 'Two' },
        ],
        sites: [{ org: 'two', name: 'Main' }],
      }
      const before = await acme.exported()
      const { applyId } = await acme.apply(files)
      expect((await acme.plan(files)).changes).toEqual([])
      const { document } = await acme.exported()
      expect(document.organizations).toContainEqual(
        expect.objectContaining({
          slug: 'two',
          name: 'One',
          auditRetention: expect.objectContaining({ retentionDays: 50 }),
        }),
      )
      const params = { id: applyId }
      const body = { prune: true, pruneLimit: 10 }
      const { version } = await acme.client.call(api.configurationApplies.plan, { params, body })
      await acme.client.call(api.configurationApplies.rollback, { params, body: { ...body, version } })
      expect((await acme.exported()).document).toEqual(before.document)
      const renamed = {
        organizations: [
          { slug: 'three', renamedFrom: 'one', name: 'One', ...retention(99) },
          { slug: 'two', name: 'Two' },
        ],
        sites: [{ org: 'three', name: 'Main' }],
      }
      await rollBack((await rollBack((await acme.apply(renamed)).applyId)).applyId)
    })
  })

  describe('the access of a partner member', () => {
    it('shows which organizations it had, and goes back and forth', async () => {
      const { acme, rollBack } = await start()
      const selected = { ...grace, orgAccess: 'selected', orgs: ['bakery', 'garage'] }
      await acme.apply({ memberships: [selected] })
      const { applyId, changes } = await acme.apply({ memberships: [{ ...grace, orgAccess: 'all' }] })
      expect(changes).toMatchObject([
        { before: { orgAccess: 'selected', orgs: ['bakery', 'garage'] }, after: { orgAccess: 'all' } },
      ])
      const back = await rollBack(applyId)
      expect(back.changes).toMatchObject([{ after: { orgAccess: 'selected', orgs: ['bakery', 'garage'] } }])
      await rollBack(back.applyId)
      const { document } = await acme.exported()
      expect(document.memberships!.find(({ email }) => email === grace.email)).toMatchObject({
        orgAccess: 'all',
      })
    })
  })
})
