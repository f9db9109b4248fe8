import { CompiledQuery, sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { auditLogs } from '../../src/audit/contract.ts'
import { configuringActions, entriesAbout } from '../../src/configuration/audit-trail.ts'
import { kinds } from '../../src/configuration/contract.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { addOrgUser, addPartnerUser, addRole, buildWorld } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

const hook = {
  org: 'bakery',
  name: 'Tickets',
  url: 'https://hooks.example.com/in',
  secret: 'one',
  events: ['device.enrolled'],
}
const ada = { org: 'bakery', email: 'ada@example.com', name: 'Ada', role: 'Org Viewer' }

it('every action that changes an object of a file is looked for', () => {
  const entries = Object.values(kinds).flatMap(({ create, update, remove, ofSystem, parts = [] }) => [
    create,
    update,
    ...(remove ? [remove] : []),
    ...(ofSystem ? [ofSystem.update] : []),
    ...parts.map(({ entry }) => entry),
  ])
  const actions = entries.map(({ audit }) => (audit as { action: string }).action)
  expect(actions.filter((action) => !configuringActions.includes(action))).toEqual([])
})

onEveryDatabase((kind, open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = (token: string) => {
      const one = configurationOf(service)(token)
      const drift = async (document: Document) => {
        const body = { document, culprits: true }
        return (await one.client.call(api.configuration.plan, { body })).changes
      }
      return { ...one, drift }
    }
    const { bakery } = world.orgs
    const member = async (name: string) =>
      by(await addPartnerUser(service, name, world.partners.acme, 'all', 'Partner Admin'))
    return { service, world, by, bakery, acme: by(world.tokens.acme), member }
  }

  describe('a difference', () => {
    it('names who last set each field, when, and the audit entry', async () => {
      const { acme, bakery, member, service, world } = await start()
      const [one, two] = [await member('one'), await member('two')]
      const site = { org: 'bakery', name: 'Annex', timezone: 'UTC', settings: { color: 'green' } }
      const files = { sites: [site], webhooks: [hook], memberships: [ada] }
      await acme.apply(files)
      const { data } = await acme.client.call(api.sites.list, { query: { orgId: bakery.id } })
      const params = { id: data.find(({ name }) => name === 'Annex')!.id }
      await one.client.call(api.sites.update, { params, body: { timezone: 'Asia/Tokyo' } })
      await two.client.call(api.sites.update, { params, body: { settings: { color: 'red' } } })
      const hooks = await service.client(world.tokens.bakery).call(api.webhooks.list, {})
      const { id } = hooks.data.find(({ name }) => name === 'Tickets')!
      await two.client.call(api.webhooks.update, {
        params: { id },
        body: { secret: 'two', status: 'paused' },
      })
      await one.client.call(api.webhooks.update, { params: { id }, body: { status: 'active' } })
      const people = await acme.client.call(api.users.list, { query: { orgId: bakery.id } })
      const person = people.data.find(({ email }) => email === ada.email)!
      const roles = await acme.client.call(api.users.roles, { query: { orgId: bakery.id } })
      const roleId = roles.data.find(({ name }) => name === 'Org Technician')!.id
      const target = { params: { id: person.id }, query: { orgId: bakery.id } }
      await two.client.call(api.users.assignRole, { ...target, body: { roleId } })

      const wanted = { ...files, webhooks: [{ ...hook, status: 'paused' }] }
      const changes = await acme.drift(wanted)
      const said = changes.map(({ section, culprits }) => [
        section,
        Object.fromEntries(culprits!.map(({ field, by, action }) => [field, [by, action]])),
      ])
      const [first, second] = ['one@example.com', 'two@example.com']
      expect(said).toEqual([
        ['sites', { timezone: [first, 'site.update'], settings: [second, 'site.update'] }],
        ['memberships', { role: [second, 'user.role.assign'] }],
        ['webhooks', { secret: [second, 'webhook.update'], status: [first, 'webhook.update'] }],
      ])
      const [culprit] = changes[0]!.culprits!
      const entry = await acme.client.call(auditLogs.show, { params: { id: culprit!.entryId } })
      expect(entry).toMatchObject({ timestamp: culprit!.at, user: { email: culprit!.by } })
      // What only the files have changed was set by the apply.
      const [{ culprits } = {}] = await acme.drift({ sites: [{ ...site, contact: { name: 'Ada' } }] })
      expect(culprits!.find(({ field }) => field === 'contact')).toMatchObject({
        by: 'acme-admin@example.com',
        action: 'site.create',
      })
      // Others do not pay for it.
      for (const change of (await acme.plan(wanted)).changes) expect(change.culprits).toBe(undefined)
    })

    it('names who deleted what is to be made again, however long ago', async () => {
      const clock = testClock()
      const service = await startService(open, { clock })
      const world = await buildWorld(service)
      const acme = configurationOf(service)(world.tokens.acme)
      const { id: orgId } = world.orgs.bakery
      const files = {
        sites: [{ org: 'bakery', name: 'Annex' }],
        memberships: [ada],
      }
      await acme.apply(files)
      const { data } = await acme.client.call(api.sites.list, { query: { orgId } })
      const id = data.find(({ name }) => name === 'Annex')!.id
      const people = await acme.client.call(api.users.list, { query: { orgId } })
      const person = people.data.find(({ email }) => email === ada.email)!
      clock.forward(86_400)
      const plannedAt = clock()
      clock.forward(60)
      await acme.client.call(api.sites.remove, { params: { id } })
      await acme.client.call(api.users.remove, { params: { id: person.id }, query: { orgId } })
      const { version } = await acme.plan(files)
      clock.forward(2 * 3600)
      const { changes } = await acme.client.call(api.configuration.plan, {
        body: { document: files, culprits: true },
      })
      expect(changes.map(({ name, culprits }) => [name, culprits])).toMatchObject([
        ['Annex', [{ field: null, by: 'acme-admin@example.com', action: 'site.delete' }]],
        ['ada@example.com', [{ field: null, action: 'user.remove' }]],
      ])
      // What is deleted is found by its id, whenever it was.
      await acme.client.call(api.sites.create, { body: { orgId, name: 'Other' } })
      const body = { document: files, version, plannedAt }
      await expect(acme.client.call(api.configuration.apply, { body })).rejects.toMatchObject({
        status: 409,
        message: expect.stringMatching(
          /site\.delete "Annex" \(by acme-admin@example\.com at \S+, audit entry/,
        ),
      })
    })

    it('names nobody to who may not read the audit log, and only what their scope has', async () => {
      const { service, by, bakery, acme } = await start()
      const files = { sites: [{ org: 'bakery', name: 'bakery site', timezone: 'Asia/Tokyo' }] }
      const reads = ['config:read', 'sites:read', 'organizations:read']
      const roleId = await addRole(service, bakery.id, 'Reader', reads)
      const reader = by(await addOrgUser(service, 'reader', bakery.id, { role: roleId }))
      const document = { sites: [{ name: 'bakery site', timezone: 'Asia/Tokyo' }] }
      const adopting = { document, adopt: true, culprits: true }
      const seen = await reader.client.call(api.configuration.plan, { body: adopting })
      expect(seen.changes.some(({ culprits }) => culprits !== undefined)).toBe(false)
      await acme.apply(files, { adopt: true })
      // The entry of what belongs to the partner is in a chain that the partner does not read.
      await acme.apply({ scripts: [{ name: 'Clean', osTypes: ['linux'], language: 'bash', content: 'a' }] })
      const [script] = await acme.drift({
        scripts: [{ name: 'Clean', osTypes: ['linux'], language: 'bash', content: 'b' }],
      })
      expect(script!.culprits).toEqual([])
    })

    it('names who set each field of an organization, and who deleted it', async () => {
      const { service, world, by, acme, member } = await start()
      const [one, two] = [await member('one'), await member('two')]
      const florist = {
        slug: 'florist',
        name: 'Florist',
        maxDevices: 5,
        auditRetention: { retentionDays: 30 },
      }
      const files = { organizations: [florist] }
      await acme.apply(files)
      const { data } = await acme.client.call(api.orgs.page, {})
      const { id } = data.find(({ slug }) => slug === 'florist')!
      await one.client.call(api.orgs.update, { params: { id }, body: { name: 'Roses' } })
      await two.client.call(api.orgs.update, { params: { id }, body: { maxDevices: 9 } })
      await two.client.call(api.auditRetention.change, { query: { orgId: id }, body: { retentionDays: 60 } })
      const saidOf = async (changes = acme.drift(files)) =>
        (await changes).map(({ action, culprits }) => [
          action,
          culprits!.map(({ field, by, action: did }) => [field, by, did]),
        ])
      const [first, second] = ['one@example.com', 'two@example.com']
      expect(await saidOf()).toEqual([
        [
          'update',
          [
            ['maxDevices', second, 'organization.update'],
            ['name', first, 'organization.update'],
          ],
        ],
        ['update', [['auditRetention', second, 'audit.retention.update']]],
      ])
      await one.client.call(api.orgs.remove, { params: { id } })
      const again = [
        ['create', [[null, first, 'organization.delete']]],
        ['update', []],
      ]
      expect(await saidOf()).toEqual(again)
      // Another partner deletes one of that slug, later.
      const globex = by(world.tokens.globex)
      const theirs = await globex.client.call(api.orgs.create, { body: { name: 'F', slug: 'florist' } })
      await globex.client.call(api.orgs.remove, { params: { id: theirs.id } })
      expect(await saidOf()).toEqual(again)
      const query = { partnerId: world.partners.acme }
      const body = { document: files, culprits: true }
      const system = service.client(world.tokens.system).call(api.configuration.plan, { query, body })
      expect(await saidOf(system.then(({ changes }) => changes))).toEqual(again)
    })

    it('names who changed what belongs to a partner to a system administrator, and to no partner', async () => {
      const { service, acme, member, world } = await start()
      const one = await member('one')
      const form = { osTypes: ['linux'], language: 'bash' as const }
      const files = {
        roles: [{ name: 'Pilot', permissions: ['devices:read'] }],
        scripts: ['Clean', 'Care'].map((name) => ({ name, ...form, content: 'true' })),
        memberships: [{ email: ada.email, name: 'Ada', role: 'Partner Viewer', orgAccess: 'all' }],
      }
      await acme.apply(files)
      const { data: scripts } = await acme.client.call(api.scripts.list, {})
      const idOf = (name: string) => ({ id: scripts.find((script) => script.name === name)!.id })
      await one.client.call(api.scripts.update, { params: idOf('Clean'), body: { content: 'false' } })
      await one.client.call(api.scripts.remove, { params: idOf('Care') })
      const { data: people } = await acme.client.call(api.users.list, {})
      const { id } = people.find(({ email }) => email === ada.email)!
      await one.client.call(api.users.changeAccess, { params: { id }, body: { orgAccess: 'none' } })
      const drift = async (token: string, query: { partnerId?: string }) => {
        const body = { document: files, culprits: true }
        const plan = await service.client(token).call(api.configuration.plan, { query, body })
        return plan.changes.map(({ name, culprits }) => [
          name,
          culprits!.map(({ by, action }) => [by, action]),
        ])
      }
      const by = 'one@example.com'
      const partnerId = world.partners.acme
      expect(await drift(world.tokens.system, { partnerId })).toEqual([
        ['Clean', [[by, 'script.update']]],
        ['Care', [[by, 'script.delete']]],
        [ada.email, [[by, 'user.access.update']]],
      ])
      for (const query of [{}, { partnerId }])
        expect(await drift(world.tokens.acme, query)).toEqual([
          ['Clean', []],
          ['Care', []],
          [ada.email, []],
        ])
    })

    it('finds entries by the id of the object through an index', async () => {
      const { service, bakery } = await start()
      const scope = { kind: 'organization', orgId: bakery.id, siteIds: null, groupIds: null } as const
      const subject = { section: 'sites', id: bakery.siteId, orgId: bakery.id } as const
      const plan = await service.storage.write(async (tx) => {
        // The table is small enough to be read as a whole.
        if (kind === 'postgres') await sql`set local enable_seqscan = off`.execute(tx)
        const { sql: text, parameters } = entriesAbout(tx, scope, subject).limit(20).compile()
        const explain = kind === 'postgres' ? 'explain' : 'explain query plan'
        return (await tx.executeQuery(CompiledQuery.raw(`${explain} ${text}`, [...parameters]))).rows
      })
      expect(JSON.stringify(plan)).toContain('audit_logs_configured_failures')
    })
  })
})
