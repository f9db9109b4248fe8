import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { addOrgUser, addPartnerUser, addRole } from '../world.ts'
import { startWithHistory } from './history-fixture.ts'

const reads = ['config:read', 'users:read', 'roles:read', 'sites:read', 'devices:read', 'organizations:read']

inTurn((open) => {
  const start = async () => {
    const stage = await startWithHistory(open)
    const { service, world, by } = stage
    const { bakery } = world.orgs
    const role = await addRole(service, bakery.id, 'Planner', reads)
    return { ...stage, reader: by(await addOrgUser(service, 'reader', bakery.id, { role })) }
  }
  const viewer = (name: string) => ({ email: `${name}@example.com`, name, role: 'Org Viewer' })

  describe('a plan of somebody who may change nothing', () => {
    it('has each change once, and its version is that of whoever applies it', async () => {
      const { bakery, reader } = await start()
      await bakery.apply({ memberships: [viewer('one')] })
      const files = { memberships: [viewer('one'), viewer('two')] }
      const plan = await reader.plan(files)
      expect(plan.changes).toMatchObject([{ action: 'create', name: 'two@example.com' }])
      expect(plan.totals).toMatchObject({ create: 1, refused: 1 })
      expect((await bakery.plan(files)).version).toBe(plan.version)
      expect((await bakery.apply(files, {}, plan.version)).totals).toMatchObject({ create: 1, refused: 0 })
    })

    it('counts as many changes as there are', async () => {
      const { bakery, reader } = await start()
      await bakery.apply({ memberships: [viewer('one')] })
      const many = Array.from({ length: 599 }, (_, at) => viewer(`m${at}`))
      const { totals } = await reader.plan({ memberships: [viewer('one'), ...many] })
      expect(totals).toMatchObject({ create: 599, refused: 599 })
    })

    it('shows what a change decides besides', async () => {
      const { service, world, by, acme } = await start()
      const partner = { partnerId: world.partners.acme }
      const role = await addRole(service, partner, 'Planner', reads)
      const reader = by(await addPartnerUser(service, 'planner', partner.partnerId, 'all', role))
      const ada = { email: 'ada@example.com', role: 'Partner Viewer' }
      for (const orgAccess of ['all', 'none']) {
        const selected = { ...ada, name: 'Ada', orgAccess: 'selected', orgs: ['bakery'] }
        await acme.apply({ memberships: [selected] })
        const files = { memberships: [{ ...ada, orgAccess }] }
        const plan = await reader.plan(files)
        expect(plan.changes).toMatchObject([
          { before: { orgAccess: 'selected', orgs: ['bakery'] }, after: { orgAccess } },
        ])
        const { changes } = await acme.apply(files, {}, plan.version)
        expect(plan.changes.map((change) => ({ ...change, refused: null }))).toEqual(changes)
      }
    })
  })

  describe('a plan of somebody whose role does not reach as far as the roles of the files', () => {
    const files = {
      roles: [
        { name: 'Lead', permissions: ['devices:read', 'devices:execute'] },
        { name: 'Night', permissions: ['devices:read'], parent: 'Lead' },
      ],
      memberships: [
        { ...viewer('one'), role: 'Night' },
        { ...viewer('two'), role: 'Lead' },
      ],
    }
    /** Of whoever may apply, with the refusals of the reader. */
    const unrefused = (changes: readonly { refused: string | null }[]) =>
      changes.map((change) => JSON.stringify({ ...change, refused: null })).sort()

    it('has what names these as well, new or not, and the version of whoever applies it', async () => {
      const { bakery, reader } = await start()
      await bakery.apply({ memberships: [viewer('one')] })
      const plan = await reader.plan(files)
      expect(plan.totals).toMatchObject({ create: 3, update: 1, refused: 4 })
      const own = await bakery.plan(files)
      expect(unrefused(plan.changes)).toEqual(unrefused(own.changes))
      expect(plan.version).toBe(own.version)
      expect((await bakery.apply(files, {}, plan.version)).totals).toMatchObject({ create: 3, update: 1 })
    })

    it('says of each what it needs', async () => {
      const { service, world, by } = await start()
      const { id } = world.orgs.bakery
      const held = [...reads, 'config:apply', 'users:write', 'users:invite']
      const role = await addRole(service, id, 'Applier', held)
      const applier = by(await addOrgUser(service, 'applier', id, { role }))
      const { changes } = await applier.plan(files)
      expect(changes.map(({ section, name, refused }) => `${section} ${name}: ${refused}`)).toEqual([
        expect.stringMatching(/^roles Lead: .*devices:execute/),
        'roles Night: needs "Lead" of the roles, which is refused',
        'memberships one@example.com: needs "Night" of the roles, which is refused',
        'memberships two@example.com: needs "Lead" of the roles, which is refused',
      ])
      await expect(applier.apply(files)).rejects.toMatchObject({ code: 'forbidden' })
    })

    it('has what is in an organization that they may not make, and whose slug is taken', async () => {
      const { service, world, by } = await start()
      const partner = { partnerId: world.partners.acme }
      const held = [...reads, 'sites:write']
      const role = await addRole(service, partner, 'Planner', held)
      const planner = by(await addPartnerUser(service, 'planner', partner.partnerId, 'all', role))
      const linesOf = async (org: string) => {
        const organizations = [{ name: 'Florist', slug: org }]
        const webhook = {
          org,
          name: 'Hook',
          url: 'https://hooks.example.com',
          secret: null,
          events: ['device.enrolled'],
        }
        const { changes } = await planner.plan({
          organizations,
          sites: [{ org, name: 'Annex' }],
          webhooks: [{ ...webhook, status: 'paused', retryPolicy: { maxRetries: 1 } }],
        })
        return changes.map(({ section, name, refused }) => `${section} ${name}: ${refused}`)
      }
      const free = await linesOf('florist')
      expect(free).toEqual([
        expect.stringMatching(/^organizations florist: /),
        expect.stringMatching(/^sites Annex: /),
        expect.stringMatching(/^webhooks Hook: /),
        expect.stringMatching(/^webhooks Hook: /),
        expect.stringMatching(/^webhooks Hook: /),
      ])
      const taken = await linesOf('harbor')
      expect(taken.map((line) => line.replaceAll('harbor', 'florist'))).toEqual(free)
    })
  })

  describe('changes that allow one another', () => {
    it('may stand in any order, whoever plans, and also where they are taken over', async () => {
      const { service, world, by, acme } = await start()
      const partner = { partnerId: world.partners.acme }
      const role = await addRole(service, partner, 'Planner', reads)
      const planner = by(await addPartnerUser(service, 'planner', partner.partnerId, 'all', role))
      const { id } = await acme.client.call(api.orgs.create, { body: { name: 'Florist', slug: 'florist' } })
      await addOrgUser(service, 'old', id, { role: 'Org Admin' })
      await addOrgUser(service, 'new', id, { role: 'Org Viewer' })
      const files = [
        { org: 'florist', email: 'old@example.com', role: 'Org Viewer' },
        { org: 'florist', email: 'new@example.com', role: 'Org Admin' },
      ]
      const plan = await acme.plan({ memberships: files }, { adopt: true })
      expect(plan.totals).toMatchObject({ adopt: 2, update: 2, refused: 0 })
      const turned = await acme.plan({ memberships: files.toReversed() }, { adopt: true })
      const linesOf = ({ changes }: typeof plan) => changes.map((one) => JSON.stringify(one)).sort()
      expect(linesOf(turned)).toEqual(linesOf(plan))
      const seen = await planner.plan({ memberships: files }, { adopt: true })
      expect(seen.totals).toMatchObject({ adopt: 2, update: 2, refused: 4 })
      await acme.apply({ memberships: files }, { adopt: true }, seen.version)
      expect((await acme.plan({ memberships: files })).changes).toEqual([])
    })
  })
})
