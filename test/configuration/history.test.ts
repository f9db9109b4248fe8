import { describe, expect, it } from 'vitest'
import { readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import { deleteEndedRecords } from '../../daemon/retention.ts'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { addSeconds } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, testSecrets } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { addOrgUser, addPartnerUser, addRole, buildWorld } from '../world.ts'
import { configurationOf, type Document } from './stage.ts'

const script = { osTypes: ['linux' as const], language: 'bash' as const, content: 'true\n' }
const online = {
  operator: 'AND',
  conditions: [{ field: 'status', operator: 'equals', value: 'online' }],
}

const hook = {
  ...{ org: 'bakery', name: 'Tickets', url: 'https://hooks.example.com/in?key=k-e-y', secret: 'one' },
  events: ['device.enrolled', 'alert.triggered'],
}
const policy = {
  ...{ org: 'bakery', name: 'CI', issuer: 'https://ci.example.com', claims: { sub: 'x' } },
  permissions: ['devices:read'],
}

const first: Document = {
  organizations: [{ slug: 'florist', name: 'Florist', settings: { color: 'green', size: { rooms: 2 } } }],
  sites: [
    { org: 'florist', name: 'Store', timezone: 'Europe/Paris' },
    { org: 'bakery', name: 'Annex' },
  ],
  roles: [{ org: 'florist', name: 'Night', parent: 'Org Viewer', permissions: ['devices:execute'] }],
  filters: [{ org: 'florist', name: 'Online', conditions: online }],
  deviceGroups: [
    { org: 'florist', name: 'Tills', site: 'Store' },
    { org: 'florist', name: 'Online', type: 'dynamic', filter: 'Online' },
  ],
  scripts: [{ name: 'Clean', ...script }],
}
/** Changes, renames, makes and deletes something of each. */
const second: Document = {
  organizations: [
    {
      slug: 'flowers',
      renamedFrom: 'florist',
      name: 'Flowers',
      settings: { size: { doors: 1 }, shade: 'dark' },
    },
  ],
  sites: [
    { org: 'flowers', name: 'Shop', renamedFrom: 'Store', timezone: 'UTC' },
    { org: 'flowers', name: 'Depot' },
  ],
  roles: [
    { org: 'flowers', name: 'Night', parent: null, permissions: ['sites:read'] },
    { org: 'flowers', name: 'Below', parent: 'Night', permissions: [] },
  ],
  filters: [{ org: 'flowers', name: 'Online', conditions: { ...online, operator: 'OR' } }],
  deviceGroups: [{ org: 'flowers', name: 'Online', type: 'dynamic', filter: 'Online' }],
  scripts: [{ name: 'Clean', ...script, content: 'false\n' }],
}
type Pruning = { prune: boolean; pruneLimit?: number }
const set: Pruning = { prune: true, pruneLimit: 9 }

onEveryDatabase((_, open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = (token: string, named?: string | { partnerId: string }) => {
      const one = configurationOf(service)(token, named)
      const query = typeof named === 'string' ? { orgId: named } : (named ?? {})
      const { configurationApplies: applies } = api
      const history = async () => (await one.client.call(applies.list, { query })).data
      const back = (id: string, pruning: Pruning = set) =>
        one.client.call(applies.plan, { params: { id }, body: pruning })
      const rollBack = async (id: string, version?: string, pruning: Pruning = set) => {
        const body = { ...pruning, version: version ?? (await back(id, pruning)).version }
        return one.client.call(applies.rollback, { params: { id }, body })
      }
      return { ...one, history, back, rollBack }
    }
    return { service, world, by, acme: by(world.tokens.acme), bakery: by(world.tokens.bakery) }
  }
  const lines = (changes: { action: string; section: string; name: string }[]) =>
    changes.map(({ action, section, name }) => `${action} ${section} ${name}`)

  describe('the history', () => {
    it('has each apply that changed something, newest first, with who applied it and how much', async () => {
      const { acme } = await start()
      const one = await acme.apply(first, { revision: 'a1' })
      const two = await acme.apply(second, { ...set, revision: 'b2', set: 'default' })
      await acme.apply(second, { ...set, revision: 'c3' })
      const { left: _, refused: __, ...totals } = two.totals
      expect(await acme.history()).toMatchObject([
        { id: two.applyId, set: 'default', revision: 'b2', rollsBack: null, totals, canRollBack: true },
        { id: one.applyId, revision: 'a1', appliedBy: 'acme-admin@example.com' },
      ])
    })

    it('is that of the tenant, and of nobody else', async () => {
      const { service, world, by, acme, bakery } = await start()
      const { id } = world.orgs.bakery
      const ours = await bakery.apply({ sites: [{ name: 'Ours' }] }, { set: 'ours' })
      const theirs = await acme.apply({ sites: [{ org: 'bakery', name: 'Theirs' }] })
      const ids = async (one: typeof acme) => (await one.history()).map((apply) => apply.id)
      expect(await ids(bakery)).toEqual([ours.applyId])
      expect(await ids(by(world.tokens.acme, id))).toEqual([ours.applyId])
      expect(await ids(acme)).toEqual([theirs.applyId])
      for (const token of [world.tokens.garage, world.tokens.globex, world.tokens.harbor]) {
        expect(await ids(by(token))).toEqual([])
        for (const apply of [ours, theirs]) {
          await expect(by(token).back(apply.applyId)).rejects.toMatchObject({ status: 404 })
          await expect(by(token).rollBack(apply.applyId, 'x')).rejects.toMatchObject({ status: 404 })
        }
      }
      await expect(bakery.back(theirs.applyId)).rejects.toMatchObject({ status: 404 })
      const roleId = await addRole(service, id, 'Nobody', ['sites:read'])
      const nobody = by(await addOrgUser(service, 'nobody', id, { role: roleId }))
      await expect(nobody.history()).rejects.toMatchObject({ status: 403 })
    })

    it('keeps the last 100 applies of a tenant and what retention allows, and none of a deleted one', async () => {
      const { service, world, acme } = await start()
      const partner_id = world.partners.acme
      const row = {
        partner_id,
        org_id: null,
        owner: partner_id,
        set_name: 'x',
        revision: null,
        applied_by: 'x',
      }
      const change = { section: 'scripts', action: 'create', org_id: null }
      const { read, write } = service.storage
      // Each has half of the characters that a tenant may have.
      const half = 32 * 1024 * 1024
      await write(async (tx) => {
        for (let n = 0; n < 100; n += 1) {
          const id = `old-${String(n).padStart(3, '0')}`
          const applied_at = addSeconds('2020-01-01T00:00:00.000Z', n)
          await tx
            .insertInto('config_applies')
            .values({ id, applied_at, rolls_back: null, characters: half, ...row })
            .execute()
          await tx
            .insertInto('config_changes')
            .values({ id: `change-${n}`, apply_id: id, position: 0, ...change, content: '' })
            .execute()
        }
      })
      const { applyId } = await acme.apply({ scripts: [{ name: 'Clean', ...script }] })
      const list = (page: number) =>
        acme.client.call(api.configurationApplies.list, { query: { page, limit: 60 } })
      const [one, two] = [await list(1), await list(2)]
      expect([one.data.length, two.data.length, two.pagination.total]).toEqual([60, 40, 100])
      const all = [...one.data, ...two.data]
      expect(all.slice(0, 3)).toMatchObject([
        { id: applyId, canRollBack: true },
        { id: 'old-099', canRollBack: true },
        { id: 'old-098', canRollBack: false },
      ])
      // What is listed without its values is still counted.
      expect(all.map(({ totals }) => totals.create)).toEqual(Array(100).fill(1))
      const changes = await read
        .selectFrom('config_changes')
        .select('apply_id')
        .where('content', 'is not', null)
        .execute()
      expect(changes.map(({ apply_id }) => apply_id).sort()).toEqual([applyId, 'old-099'].sort())
      await expect(acme.back('00000000-0000-4000-8000-000000000000')).rejects.toMatchObject({ status: 404 })

      const never = {
        ...{
          alerts: undefined,
          scripts: undefined,
          devices: undefined,
          keys: undefined,
          rollouts: undefined,
        },
        ...{ releases: undefined, checkpoints: undefined, proofs: undefined, archives: undefined },
      }
      const news = await newEntries(service)
      await deleteEndedRecords(service.storage, { ...never, applies: 30 }, new Date().toISOString())
      expect((await acme.history()).map(({ id }) => id)).toEqual([applyId])
      expect((await news()).map(({ action }) => action)).toContain('configuration_apply.delete')
      await service.client(world.tokens.system).call(api.partners.remove, { params: { id: partner_id } })
      expect(await read.selectFrom('config_applies').select('id').execute()).toEqual([])
      expect(await read.selectFrom('config_changes').select('id').execute()).toEqual([])
    })

    it('counts what its reader may see', async () => {
      const { service, world, by, acme, bakery } = await start()
      const { id } = world.orgs.bakery
      const sites = ['bakery', 'garage'].map((org) => ({ org, name: 'Annex' }))
      await acme.apply({ sites, scripts: [{ name: 'Clean', ...script }] })
      expect((await acme.history()).map(({ totals }) => totals.create)).toEqual([3])
      await bakery.apply(
        { sites: [{ name: 'Ours' }], scripts: [{ name: 'Clean', ...script }] },
        { set: 'ours' },
      )
      const reads = await addRole(service, id, 'Reader', ['config:read', 'scripts:read'])
      const reader = by(await addOrgUser(service, 'reader', id, { role: reads }))
      expect((await reader.history()).map(({ totals }) => totals.create)).toEqual([1])
    })

    it('is of the partner that a system administrator names', async () => {
      const { world, by, acme } = await start()
      const { applyId } = await acme.apply({ sites: [{ org: 'bakery', name: 'Annex' }] })
      const system = by(world.tokens.system, { partnerId: world.partners.acme })
      expect((await system.history()).map(({ id }) => id)).toEqual([applyId])
      expect((await system.rollBack(applyId)).changes).toMatchObject([{ action: 'delete', name: 'Annex' }])
      await expect(by(world.tokens.system).history()).rejects.toMatchObject({ code: 'tenant_required' })
    })

    it('keeps no secret, and nothing that is made of one', async () => {
      const { service, acme } = await start()
      const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
      const kept = async () => {
        const rows = await service.storage.read
          .selectFrom('config_changes')
          .select(['id', 'content'])
          .execute()
        return rows.map(({ id, content }) => cipher.open(content!, `config_changes.content.${id}`)).join()
      }
      const files = (secret: string): Document => ({
        organizations: [{ slug: 'florist', name: 'Florist', settings: { color: 'green', apiToken: secret } }],
        webhooks: [{ ...hook, secret, headers: [{ key: 'X-Key', value: secret }] }],
        trustPolicies: [{ ...policy, claims: { sub: 'x', token: secret } }],
      })
      await acme.apply(files('hush-one'))
      await acme.apply(files('hush-two'))
      await acme.apply({ organizations: [], webhooks: [], trustPolicies: [] }, set)
      const text = await kept()
      expect(text).toContain('green')
      for (const secret of ['hush-one', 'hush-two', 'k-e-y'])
        for (const told of [secret, cipher.fingerprint(secret)]) expect(text).not.toContain(told)
    })

    it('keeps values sealed', async () => {
      const { service, acme } = await start()
      await acme.apply(first)
      const rows = await service.storage.read.selectFrom('config_changes').select('content').execute()
      expect(rows).toHaveLength(8)
      const isSealed = (content: string | null) => content?.startsWith('v1.') && !content.includes('Florist')
      expect(rows.filter(({ content }) => !isSealed(content))).toEqual([])
    })
  })

  describe('a rollback', () => {
    it('makes everything as it was, says so before, and is in the audit log and the history itself', async () => {
      const { service, acme } = await start()
      await acme.apply(first)
      const before = await acme.exported()
      const two = await acme.apply(second, set)
      const between = await acme.exported()
      const stored = await dump(service.storage)
      const plan = await acme.back(two.applyId)
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
      expect((await acme.plan(second, set)).changes).toEqual([])
    })

    it('gives what was taken over back to nobody, with the values from before', async () => {
      const { acme } = await start()
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
      const { service, world, by, acme } = await start()
      const { applyId } = await acme.apply(first)
      const before = await dump(service.storage)
      const refusedFor = async (text: string) => {
        const conflict = { status: 409, code: 'conflict', message: expect.stringContaining(text) }
        await expect(acme.back(applyId)).rejects.toMatchObject(conflict)
        await expect(acme.rollBack(applyId, 'x')).rejects.toMatchObject({ status: 409 })
      }
      const orgs = await acme.client.call(api.orgs.list)
      const florist = orgs.data.find(({ slug }) => slug === 'florist')!
      const { data: sites } = await acme.client.call(api.sites.list, { query: { orgId: florist.id } })
      // Something in an organization that would go.
      const late = await acme.client.call(api.sites.create, { body: { orgId: florist.id, name: 'Late' } })
      await refusedFor('sites "Late" of florist stands on what it made')
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
      await refusedFor('deviceGroups "Tables" of bakery stands on what it made')
      await bakery.client.call(api.deviceGroups.remove, { params: { id: group.id } })
      // A key that would end with its organization.
      const key = await acme.client.call(api.enrollmentKeys.create, {
        body: { orgId: florist.id, name: 'k' },
      })
      await refusedFor('1 enrollmentKeys would end with it')
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

    it('deletes nothing without prune, and no more than it allows', async () => {
      const { acme } = await start()
      const sites = ['A', 'B', 'C'].map((name) => ({ org: 'bakery', name }))
      const { applyId } = await acme.apply({ sites })
      const kept = await acme.back(applyId, { prune: false })
      expect(kept).toMatchObject({ changes: [], totals: { left: 3 } })
      expect(kept.left.map(({ name }) => name)).toEqual(['A', 'B', 'C'])
      const one = await acme.back(applyId, { prune: true })
      expect(one.changes.map(({ refused }) => refused)).toEqual(
        Array(3).fill(expect.stringContaining('--prune-limit 3 allows it')),
      )
      await expect(acme.rollBack(applyId, undefined, { prune: true })).rejects.toMatchObject({
        status: 409,
        message: expect.stringContaining('--prune-limit 3'),
      })
      expect((await acme.rollBack(applyId, undefined, { prune: true, pruneLimit: 3 })).totals.delete).toBe(3)
    })

    it('leaves secrets as they are, and says so', async () => {
      const { world, by, acme } = await start()
      const org = { slug: 'florist', name: 'Florist', settings: { color: 'green', apiToken: 'one' } }
      await acme.apply({ organizations: [org], webhooks: [hook], trustPolicies: [policy] })
      const bakery = by(world.tokens.bakery)
      const changed = { ...hook, events: ['device.enrolled'], secret: 'two' }
      const two = await acme.apply({
        organizations: [{ ...org, settings: { color: 'red', apiToken: 'two' } }],
        webhooks: [changed],
        trustPolicies: [{ ...policy, claims: { sub: 'y' } }],
      })
      const plan = await acme.back(two.applyId)
      expect(plan.lost).toEqual([
        {
          ...{ section: 'organizations', org: null, name: 'florist' },
          reason: 'keeps what the apply set, as nobody is told what was before: settings',
        },
        {
          ...{ section: 'webhooks', org: 'bakery', name: 'Tickets' },
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
      const gone = await acme.apply({ organizations: [], webhooks: [], trustPolicies: [] }, set)
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
      const { service, world, acme } = await start()
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
      const two = await acme.apply({ sites, memberships: [changed] }, set)
      const waiting = async () =>
        (await service.storage.read.selectFrom('mails').select('id').execute()).length
      const letters = async () => {
        await expect.poll(waiting, { timeout: 20_000 }).toBe(0)
        return (await readOutboxMessages(service.dataDir)).length
      }
      const sent = await letters()
      const plan = await acme.back(two.applyId)
      expect(plan.lost).toEqual([
        {
          ...{ section: 'memberships', org: 'bakery', name: 'grace@example.com' },
          reason: 'is invited again, and has to accept',
        },
      ])
      expect(await letters()).toBe(sent)
      await acme.rollBack(two.applyId)
      expect(await members()).toEqual(before)
      expect(await letters()).toBe(sent + 1)
    })

    it('brings back an organization with those who were invited to it', async () => {
      const { acme } = await start()
      const admin = { org: 'florist', email: 'ada@example.com', name: 'Ada', role: 'Org Admin' }
      const files = { organizations: [{ slug: 'florist', name: 'Florist' }], memberships: [admin] }
      const one = await acme.apply(files)
      const gone = await acme.apply({ organizations: [], memberships: [] }, set)
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
      await expect(acme.back(one.applyId)).rejects.toMatchObject({ status: 409 })
    })

    it('gives names back that the apply handed on', async () => {
      const { acme } = await start()
      const named = (name: string, renamedFrom?: string) => ({
        ...{ name, ...script, content: `# ${renamedFrom ?? name}\n` },
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
      const { acme, world } = await start()
      const { applyId } = await acme.apply({ sites: [{ org: 'bakery', name: 'Annex' }] })
      const { version } = await acme.back(applyId)
      await acme.client.call(api.sites.create, { body: { orgId: world.orgs.bakery.id, name: 'Other' } })
      await expect(acme.rollBack(applyId, version)).rejects.toMatchObject({ status: 409 })
      await acme.rollBack(applyId)
      await expect(acme.back(applyId)).rejects.toMatchObject({ status: 409 })
    })

    it('shows and does nothing that its caller may not', async () => {
      const { service, world, by, acme, bakery } = await start()
      const { id } = world.orgs.bakery
      const wide = await acme.apply({ sites: [{ org: 'garage', name: 'Store' }] })
      const some = by(await addPartnerUser(service, 'some', world.partners.acme, [id]))
      const { id: siteId } = await acme.client.call(api.sites.create, { body: { orgId: id, name: 'Desk' } })
      const few = by(await addOrgUser(service, 'few', id, { siteIds: [siteId] }))
      for (const limited of [some, few]) {
        await expect(limited.history()).rejects.toMatchObject({ status: 403 })
        await expect(limited.back(wide.applyId)).rejects.toMatchObject({ status: 403 })
        await expect(limited.rollBack(wide.applyId, 'x')).rejects.toMatchObject({ status: 403 })
      }
      const own = await bakery.apply({ sites: [{ name: 'Ours' }] }, { set: 'ours' })
      const reads = ['config:read', 'config:apply', 'organizations:read', 'sites:read']
      const reader = by(
        await addOrgUser(service, 'reader', id, { role: await addRole(service, id, 'Reader', reads) }),
      )
      const plan = await reader.back(own.applyId)
      expect(plan.changes).toMatchObject([{ action: 'delete', refused: expect.any(String) }])
      await expect(reader.rollBack(own.applyId, plan.version)).rejects.toMatchObject({ status: 403 })
      const blind = by(
        await addOrgUser(service, 'blind', id, { role: await addRole(service, id, 'B', ['config:read']) }),
      )
      await expect(blind.back(own.applyId)).rejects.toMatchObject({ status: 403 })
      expect(await bakery.history()).toHaveLength(1)
    })
  })
})
