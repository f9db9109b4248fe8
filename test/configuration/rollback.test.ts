import { describe, expect, it } from 'vitest'
import { readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { addOrgUser, addPartnerUser, addRole } from '../world.ts'
import { first, hook, lines, policy, pruned, script, second, startWithHistory } from './history-fixture.ts'

inTurn((open) => {
  describe('a rollback', () => {
    it('makes everything as it was, says so before, and is in the audit log and the history itself', async () => {
      const { service, acme } = await startWithHistory(open)
      await acme.apply(first)
      const before = await acme.exported()
      const two = await acme.apply(second, pruned)
      const between = await acme.exported()
      const stored = await dump(service.storage)
      const plan = await acme.planBack(two.applyId)
      expect(changed(stored, await dump(service.storage))).toEqual([])
      expect(lines(plan.changes)).toEqual(
        expect.arrayContaining([
          'update organizations florist',
          'update sites Store',
          'create sites Annex',
          'create deviceGroups Tills',
          'delete sites Depot',
          'delete roles Below',
          'update scripts Clean',
        ]),
      )
      const news = await newEntries(service)
      const done = await acme.rollBack(two.applyId)
      expect(lines(done.changes)).toEqual(lines(plan.changes))
      expect((await acme.exported()).document).toEqual(before.document)
      const entries = (await news()).filter(({ details }) => 'configuration' in details)
      expect(entries).toHaveLength(done.changes.length + 1)
      const configuration = { applyId: done.applyId, set: 'default', rollsBack: two.applyId }
      for (const { details } of entries) expect(details).toMatchObject({ configuration })
      expect(entries.map(({ action }) => action)).toContain('config.rollback')
      expect((await acme.history())[0]).toMatchObject({ id: done.applyId, rollsBack: two.applyId })
      // And forward again.
      await acme.rollBack(done.applyId)
      expect((await acme.exported()).document).toEqual(between.document)
      expect((await acme.plan(second, pruned)).changes).toEqual([])
    })

    it('gives what was taken over back to nobody, with the values from before', async () => {
      const { acme } = await startWithHistory(open)
      const files = { sites: [{ org: 'bakery', name: 'bakery site', timezone: 'Europe/Paris' }] }
      const { applyId } = await acme.apply(files, { adopt: true })
      const { changes, totals, applyId: back } = await acme.rollBack(applyId)
      expect(changes).toMatchObject([
        { action: 'update', after: { timezone: 'UTC' } },
        { action: 'release', name: 'bakery site' },
      ])
      expect(totals).toMatchObject({ update: 1, release: 1 })
      await expect(acme.plan(files)).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('belongs to no set') }],
      })
      expect(await acme.sets()).toEqual([])
      expect((await acme.rollBack(back)).changes).toMatchObject([{ action: 'adopt' }, { action: 'update' }])
      expect((await acme.plan(files)).changes).toEqual([])
    })

    it('is refused with what moved when later changes stand on the apply', async () => {
      const { service, world, by, acme } = await startWithHistory(open)
      const { applyId } = await acme.apply(first)
      const before = await dump(service.storage)
      const refusedFor = async (text: string) => {
        const conflict = { status: 409, code: 'conflict', message: expect.stringContaining(text) }
        await expect(acme.planBack(applyId)).rejects.toMatchObject(conflict)
        await expect(acme.rollBack(applyId, 'x')).rejects.toMatchObject({ status: 409 })
      }
      const orgs = await acme.client.call(api.orgs.list)
      const florist = orgs.data.find(({ slug }) => slug === 'florist')!
      const { data: sites } = await acme.client.call(api.sites.list, { query: { orgId: florist.id } })
      // Something in an organization that would go.
      const late = await acme.client.call(api.sites.create, { body: { orgId: florist.id, name: 'Late' } })
      await refusedFor('sites "Late" of florist depends on what it made')
      await acme.client.call(api.sites.remove, { params: { id: late.id } })
      // A value that it set.
      const params = { id: sites[0]!.id }
      await acme.client.call(api.sites.update, { params, body: { timezone: 'UTC' } })
      await refusedFor('sites "Store" of florist: timezone changed since')
      await acme.client.call(api.sites.update, { params, body: { timezone: 'Europe/Paris' } })
      // A reference to what it made.
      const bakery = by(world.tokens.acme, world.orgs.bakery.id)
      const found = await acme.client.call(api.sites.list, { query: { orgId: world.orgs.bakery.id } })
      const annex = found.data.find(({ name }) => name === 'Annex')!
      const body = { orgId: world.orgs.bakery.id, name: 'Tables', siteId: annex.id }
      const group = await bakery.client.call(api.deviceGroups.create, { body })
      await refusedFor('deviceGroups "Tables" of bakery depends on what it made')
      await bakery.client.call(api.deviceGroups.remove, { params: { id: group.id } })
      // A key that would end with its organization.
      const key = await acme.client.call(api.enrollmentKeys.create, {
        body: { orgId: florist.id, name: 'k' },
      })
      await refusedFor('enrollmentKeys "k" of florist depends on what it made')
      await acme.client.call(api.enrollmentKeys.remove, { params: { id: key.id } })
      expect(
        changed(before, await dump(service.storage)).filter((line) =>
          /^(organizations|roles|scripts|config)/.test(line),
        ),
      ).toEqual([])
      // What it made is deleted.
      await acme.client.call(api.sites.remove, { params: { id: annex.id } })
      await refusedFor('sites "Annex" of bakery is deleted')
    })

    it('leaves secrets as they are, and says so', async () => {
      const { world, by, acme } = await startWithHistory(open)
      const org = { slug: 'florist', name: 'Florist', settings: { color: 'green', apiToken: 'one' } }
      await acme.apply({ organizations: [org], webhooks: [hook], trustPolicies: [policy] })
      const bakery = by(world.tokens.bakery)
      const changed = { ...hook, events: ['device.enrolled'], secret: 'two' }
      const contact = (phone: string, password: string) => [
        { org: 'bakery', name: 'Annex', contact: { phone, password } },
      ]
      await acme.apply({ sites: contact('1', 'one') })
      const two = await acme.apply({
        sites: contact('2', 'two'),
        organizations: [{ ...org, settings: { color: 'red', apiToken: 'two' } }],
        webhooks: [changed],
        trustPolicies: [{ ...policy, claims: { sub: 'y' } }],
      })
      const plan = await acme.planBack(two.applyId)
      expect(plan.lost).toEqual([
        {
          section: 'organizations',
          org: null,
          name: 'florist',
          reason: 'keeps what the apply set, as nobody is told what was before: settings',
        },
        {
          section: 'sites',
          org: 'bakery',
          name: 'Annex',
          reason: 'keeps what the apply set, as nobody is told what was before: contact',
        },
        {
          section: 'webhooks',
          org: 'bakery',
          name: 'Tickets',
          reason: 'keeps what the apply set, as nobody is told what was before: secret',
        },
      ])
      await acme.rollBack(two.applyId)
      const settings = async () =>
        (await acme.client.call(api.orgs.list)).data.find(({ slug }) => slug === 'florist')!.settings
      expect(await settings()).toEqual({ color: 'green', apiToken: 'two' })
      // The secret is that of the second apply, and the rest that of the first.
      expect((await acme.plan({ webhooks: [{ ...hook, secret: 'two' }] })).changes).toEqual([])
      expect((await acme.plan({ trustPolicies: [policy] })).changes).toEqual([])
      const gone = await acme.apply({ organizations: [], webhooks: [], trustPolicies: [] }, pruned)
      const { lost, changes } = await acme.rollBack(gone.applyId)
      expect(lost).toMatchObject([
        { section: 'organizations', reason: 'is made again without the secrets in its settings' },
        { section: 'webhooks', reason: 'is not made again, as its url, secret is kept nowhere' },
      ])
      expect(lines(changes)).toEqual(['create organizations florist', 'create trustPolicies CI'])
      expect(await settings()).toEqual({ color: 'green' })
      expect((await bakery.client.call(api.webhooks.list, {})).data.map(({ name }) => name)).toEqual([
        'bakery webhook',
      ])
    })

    it('gives members their former role and reach, and invites again who was removed', async () => {
      const { service, world, acme } = await startWithHistory(open)
      const orgId = world.orgs.bakery.id
      const members = async () =>
        (await acme.client.call(api.users.list, { query: { orgId } })).data
          .filter(({ email }) => /^(ada|grace)@/.test(email))
          .map(({ email, roleName, siteIds, status }) => [email, roleName, siteIds?.length ?? null, status])
      const ada = {
        org: 'bakery',
        email: 'ada@example.com',
        name: 'Ada',
        role: 'Org Viewer',
        sites: ['Annex'],
      }
      const grace = { org: 'bakery', email: 'grace@example.com', name: 'Grace', role: 'Org Viewer' }
      const sites = [{ org: 'bakery', name: 'Annex' }]
      await acme.apply({ sites, memberships: [ada, grace] })
      const before = await members()
      expect(before).toEqual([
        ['ada@example.com', 'Org Viewer', 1, 'invited'],
        ['grace@example.com', 'Org Viewer', null, 'invited'],
      ])
      const changed = { ...ada, role: 'Org Technician', sites: null }
      const two = await acme.apply({ sites, memberships: [changed] }, pruned)
      const waiting = async () =>
        (await service.storage.read.selectFrom('mails').select('id').execute()).length
      const letters = async () => {
        await expect.poll(waiting, { timeout: 20_000 }).toBe(0)
        return (await readOutboxMessages(service.dataDir)).length
      }
      const sent = await letters()
      const plan = await acme.planBack(two.applyId)
      expect(plan.lost).toEqual([
        {
          section: 'memberships',
          org: 'bakery',
          name: 'grace@example.com',
          reason: 'is invited again, and has to accept',
        },
      ])
      expect(await letters()).toBe(sent)
      await acme.rollBack(two.applyId)
      expect(await members()).toEqual(before)
      expect(await letters()).toBe(sent + 1)
    })

    it('brings back an organization with those who were invited to it', async () => {
      const { acme } = await startWithHistory(open)
      const admin = { org: 'florist', email: 'ada@example.com', name: 'Ada', role: 'Org Admin' }
      const files = { organizations: [{ slug: 'florist', name: 'Florist' }], memberships: [admin] }
      const one = await acme.apply(files)
      const gone = await acme.apply({ organizations: [], memberships: [] }, pruned)
      expect(gone.totals.delete).toBe(1)
      expect((await acme.history())[0]!.totals.delete).toBe(1)
      const back = await acme.rollBack(gone.applyId)
      expect(lines(back.changes)).toEqual([
        'create organizations florist',
        'create memberships ada@example.com',
      ])
      expect((await acme.plan(files)).changes).toEqual([])
      // Who was invited by the apply does not stand in its way.
      expect(lines((await acme.rollBack(back.applyId)).changes)).toEqual(['delete organizations florist'])
      await expect(acme.planBack(one.applyId)).rejects.toMatchObject({ status: 409 })
    })

    it('gives names back that the apply handed on', async () => {
      const { acme } = await startWithHistory(open)
      const named = (name: string, renamedFrom?: string) => ({
        name,
        ...script,
        content: `# ${renamedFrom ?? name}\n`,
        ...(renamedFrom !== undefined && { renamedFrom }),
      })
      await acme.apply({ scripts: [named('One'), named('Two')] })
      const scripts = async () => (await acme.client.call(api.configuration.export)).document.scripts
      const before = await scripts()
      const { applyId } = await acme.apply({ scripts: [named('Three', 'One'), named('One', 'Two')] })
      await acme.rollBack(applyId)
      expect(await scripts()).toEqual(before)
    })

    it('is refused when what was shown is not what would be done', async () => {
      const { acme, world } = await startWithHistory(open)
      const { applyId } = await acme.apply({ sites: [{ org: 'bakery', name: 'Annex' }] })
      const { version } = await acme.planBack(applyId)
      await acme.client.call(api.sites.create, { body: { orgId: world.orgs.bakery.id, name: 'Other' } })
      await expect(acme.rollBack(applyId, version)).rejects.toMatchObject({ status: 409 })
      await acme.rollBack(applyId)
      await expect(acme.planBack(applyId)).rejects.toMatchObject({ status: 409 })
    })

    it('follows another, from the last apply to the first, also where it made things again', async () => {
      const { acme } = await startWithHistory(open)
      const none = Object.fromEntries(Object.keys(first).map((section) => [section, []]))
      const exports = [(await acme.exported()).document]
      const applies: string[] = []
      for (const files of [first, second, none, first, second]) {
        const { applyId } = await acme.apply(files, { prune: true, pruneLimit: 30 })
        applies.push(applyId)
        exports.push((await acme.exported()).document)
      }
      for (const [at, applyId] of [...applies.entries()].toReversed()) {
        await acme.rollBack(applyId, undefined, { prune: true, pruneLimit: 30 })
        expect((await acme.exported()).document).toEqual(exports[at])
      }
    })

    it('shows and does nothing that its caller may not', async () => {
      const { service, world, by, acme, bakery } = await startWithHistory(open)
      const { id } = world.orgs.bakery
      const wide = await acme.apply({ sites: [{ org: 'garage', name: 'Store' }] })
      const some = by(await addPartnerUser(service, 'some', world.partners.acme, [id]))
      const { id: siteId } = await acme.client.call(api.sites.create, { body: { orgId: id, name: 'Desk' } })
      const few = by(await addOrgUser(service, 'few', id, { siteIds: [siteId] }))
      for (const limited of [some, few]) {
        await expect(limited.history()).rejects.toMatchObject({ status: 403 })
        await expect(limited.planBack(wide.applyId)).rejects.toMatchObject({ status: 403 })
        await expect(limited.rollBack(wide.applyId, 'x')).rejects.toMatchObject({ status: 403 })
      }
      const own = await bakery.apply({ sites: [{ name: 'Ours' }] }, { set: 'ours' })
      const reads = ['config:read', 'config:apply', 'organizations:read', 'sites:read']
      const reader = by(
        await addOrgUser(service, 'reader', id, { role: await addRole(service, id, 'Reader', reads) }),
      )
      const plan = await reader.planBack(own.applyId)
      expect(plan.changes).toMatchObject([{ action: 'delete', refused: expect.any(String) }])
      await expect(reader.rollBack(own.applyId, plan.version)).rejects.toMatchObject({ status: 403 })
      const blind = by(
        await addOrgUser(service, 'blind', id, { role: await addRole(service, id, 'B', ['config:read']) }),
      )
      await expect(blind.planBack(own.applyId)).rejects.toMatchObject({ status: 403 })
      expect(await bakery.history()).toHaveLength(1)
    })
  })
})
