import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, addPartnerUser, addRole, buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const script = { osTypes: ['linux' as const], language: 'bash' as const, content: 'true\n' }

inTurn((open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = configurationOf(service)
    return { service, world, by, acme: by(world.tokens.acme), bakery: by(world.tokens.bakery) }
  }

  describe('a refusal', () => {
    it('of a plan, and of an apply, is in the audit log of the organization that was meant', async () => {
      const { service, world, by } = await start()
      const { id } = world.orgs.bakery
      const reader = by(
        await addOrgUser(service, 'reader', id, { role: await addRole(service, id, 'R', ['config:read']) }),
      )
      const news = await newEntries(service)
      const refusals = async () =>
        (await news()).map(({ action, orgId, result, details: { path, code, configuration } }) => ({
          action,
          orgId,
          result,
          path,
          code,
          configuration,
        }))
      await expect(reader.plan({ sites: [] }, { set: 'one' })).rejects.toMatchObject({ status: 403 })
      await expect(reader.apply({ sites: [] }, { set: 'one' }, 'x')).rejects.toMatchObject({ status: 403 })
      const denied = { orgId: id, result: 'denied', code: 'forbidden' }
      expect(await refusals()).toMatchObject([
        { ...denied, action: 'access.denied', path: '/config/plan', configuration: { set: 'one' } },
        { ...denied, action: 'config.apply', path: '/config/apply' },
      ])
      // A partner's user names the organization.
      const permissions = ['config:read', 'config:apply', 'organizations:read']
      const roleId = await addRole(service, { partnerId: world.partners.acme }, 'P', permissions)
      const some = by(await addPartnerUser(service, 'some', world.partners.acme, [id], roleId), id)
      await news()
      await expect(some.plan({ scripts: [] })).rejects.toMatchObject({ status: 403 })
      const { version } = await by(world.tokens.acme, id).plan({ organizations: [] })
      await expect(some.apply({ scripts: [] }, { set: 'two' }, version)).rejects.toMatchObject({
        status: 403,
      })
      expect(await refusals()).toMatchObject([
        { ...denied, path: '/config/plan' },
        { ...denied, path: '/config/apply', configuration: { set: 'two' } },
      ])
    })
  })

  describe('a set', () => {
    it('goes with its organization, and so do the objects that the partner has in it', async () => {
      const { service, world, acme, bakery } = await start()
      await acme.apply({ sites: [{ org: 'bakery', name: 'a' }], scripts: [{ name: 's', ...script }] })
      await bakery.apply({ sites: [{ name: 'b' }] }, { set: 'ours' })
      const rows = async () => {
        const { read } = service.storage
        const sets = await read.selectFrom('config_sets').select('name').orderBy('name').execute()
        const objects = await read.selectFrom('config_objects').select('section').execute()
        return [sets.map(({ name }) => name), objects.map(({ section }) => section).sort()]
      }
      expect(await rows()).toEqual([
        ['default', 'ours'],
        ['scripts', 'sites', 'sites'],
      ])
      await acme.client.call(api.orgs.remove, { params: { id: world.orgs.bakery.id } })
      expect(await rows()).toEqual([['default'], ['scripts']])
      const system = service.client(world.tokens.system)
      await system.call(api.partners.remove, { params: { id: world.partners.acme } })
      expect(await rows()).toEqual([[], []])
    })

    it('says what it was last changed by, and nothing of applies that change nothing', async () => {
      const { acme } = await start()
      const files = { scripts: [{ name: 's', ...script }] }
      await acme.apply(files, { revision: 'first' })
      const before = await acme.sets()
      await acme.apply(files, { revision: 'second' })
      expect(await acme.sets()).toEqual(before)
      await acme.apply({ scripts: [{ name: 's', ...script, timeoutSeconds: 7 }] }, { revision: 'third' })
      expect(await acme.sets()).toMatchObject([{ revision: 'third' }])
    })
  })

  describe('a plan that is out of date', () => {
    it('says what moved and who moved it, to whoever may read the audit log', async () => {
      const { service, world, by, acme } = await start()
      const { id: orgId, siteId } = world.orgs.bakery
      const document = { sites: [{ name: 'Annex' }] }
      const readers = ['config:read', 'config:apply', 'sites:read', 'sites:write', 'organizations:read']
      const roleId = await addRole(service, orgId, 'Applier', readers)
      const applier = by(await addOrgUser(service, 'applier', orgId, { role: roleId }))
      const bakery = by(world.tokens.bakery)
      const late = await acme.client.call(api.sites.create, { body: { orgId, name: 'Late' } })
      const { version, plannedAt } = await bakery.plan(document)
      await acme.client.call(api.sites.update, { params: { id: siteId }, body: { timezone: 'Asia/Tokyo' } })
      await acme.client.call(api.sites.remove, { params: { id: late.id } })
      await sealPending(service.storage)
      const told = async ({ client }: typeof acme) => {
        const body = { document, version, plannedAt }
        const error = await client.call(api.configuration.apply, { body }).catch((caught: unknown) => caught)
        expect(error).toMatchObject({ status: 409, code: 'conflict' })
        return String((error as Error).message)
      }
      const message = await told(bakery)
      expect(message).toMatch(
        /sites "bakery site" \(by acme-admin@example\.com at \S+, audit entry [0-9a-f-]{36}\)/,
      )
      expect(message).toMatch(/site\.delete "Late" \(by acme-admin@example\.com at /)
      const less = await told(applier)
      expect(less).toMatch(/sites "bakery site" \(\d{4}-/)
      expect(less).not.toContain('acme-admin')
    })
  })

  it('of nothing that is out of date is a conflict as well', async () => {
    const { acme } = await start()
    const body = { document: {}, version: '0', plannedAt: '2000-01-01T00:00:00.000Z' }
    for (const plannedAt of [body.plannedAt, new Date().toISOString()]) {
      const sent = acme.client.call(api.configuration.apply, { body: { ...body, plannedAt } })
      await expect(sent).rejects.toMatchObject({ status: 409, code: 'conflict' })
    }
  })

  it('of a member with selected organizations may hold a new one and what is in it, and counts what they see', async () => {
    const { service, world, by, acme } = await start()
    const some = by(await addPartnerUser(service, 'selected', world.partners.acme, [world.orgs.bakery.id]))
    await acme.apply({ sites: [{ org: 'garage', name: 'Unseen' }] })
    const document = {
      organizations: [{ slug: 'new-here', name: 'New here' }],
      webhooks: [
        {
          org: 'new-here',
          name: 'Hook',
          url: 'https://hooks.example.com/in',
          secret: null,
          events: ['device.enrolled'],
        },
      ],
    }
    expect((await some.plan(document)).totals).toMatchObject({ create: 2, refused: 0 })
    await some.apply(document)
    expect((await some.sets()).map(({ name, objects }) => [name, objects])).toEqual([['default', 2]])
    expect((await acme.sets()).map(({ objects }) => objects)).toEqual([3])
  })

  it('is shown to a member with selected organizations where it owns something of them', async () => {
    const { service, world, by, acme, bakery } = await start()
    const some = by(await addPartnerUser(service, 'selected', world.partners.acme, [world.orgs.bakery.id]))
    const none = by(await addPartnerUser(service, 'none', world.partners.acme, []))
    const site = (org: string, name: string) => ({ sites: [{ org, name }] })
    await acme.apply(site('garage', 'Unseen'), { set: 'unseen' })
    const roles = [{ name: 'Watcher', permissions: ['alerts:read'] }]
    await acme.apply({ roles }, { set: 'of-partner' })
    await acme.apply(
      { sites: [...site('garage', 'One').sites, ...site('bakery', 'Two').sites] },
      { set: 'both' },
    )
    await bakery.apply({ sites: [{ name: 'Three' }] }, { set: 'own' })
    const named = async (one: typeof acme) => (await one.sets()).map(({ name, objects }) => [name, objects])
    expect(await named(some)).toEqual([['both', 1]])
    expect(await named(none)).toEqual([])
    expect(await named(acme)).toEqual([
      ['both', 2],
      ['of-partner', 1],
      ['unseen', 1],
    ])
    expect(await named(by(world.tokens.acme, world.orgs.bakery.id))).toEqual([['own', 1]])
    // What it owned was deleted otherwise: only who sees all of the partner knows that it is still there.
    const { data } = await acme.client.call(api.sites.list, { query: { orgId: world.orgs.bakery.id } })
    const { id } = data.find(({ name }) => name === 'Two')!
    await acme.client.call(api.sites.remove, { params: { id } })
    expect((await acme.sets()).map(({ name }) => name)).toContain('both')
  })

  describe('files', () => {
    it('that name an object with its organization and without it are at fault in both places', async () => {
      const { bakery } = await start()
      const sites = [{ name: 'Annex' }, { org: 'bakery', name: 'Annex', timezone: 'UTC' }]
      await expect(bakery.plan({ sites })).rejects.toMatchObject({
        details: [0, 1].map((at) => ({
          path: `body.document.sites.${at}.name`,
          message: '"Annex" occurs twice',
        })),
      })
      // So is what refers to it.
      const roles = [
        { org: 'bakery', name: 'Below', parent: 'Above', permissions: [] },
        { name: 'Above', permissions: [] },
      ]
      const { changes } = await bakery.plan({ roles })
      expect(changes.map(({ name }) => name)).toEqual(['Above', 'Below'])
    })

    it('have every script, however many there are', async () => {
      const { bakery } = await start()
      const scripts = Array.from({ length: 33 }, (_, n) => ({ name: `s ${n}`, ...script }))
      await bakery.apply({ scripts })
      expect((await bakery.exported()).document.scripts).toHaveLength(34)
      expect((await bakery.plan({ scripts })).changes).toEqual([])
    })
  })

  it('is exported without what others own, and that is planned by it', async () => {
    const { acme, bakery } = await start()
    const site = (name: string) => ({ org: 'bakery', name })
    await acme.apply({ sites: [site('A')] }, { set: 'a' })
    await acme.apply({ sites: [site('B')] }, { set: 'b' })
    await bakery.apply({ sites: [{ name: 'C' }] }, { set: 'a' })
    for (const [set, own, others] of [
      ['a', 'A', ['B', 'C']],
      ['b', 'B', ['A', 'C']],
      ['new', undefined, ['A', 'B', 'C']],
    ] as const) {
      const query = { set }
      const { document, skipped } = await acme.client.call(api.configuration.export, { query })
      const names = (document.sites ?? []).map(({ name }) => name)
      expect(names.filter((name) => ['A', 'B', 'C'].includes(String(name)))).toEqual(own ? [own] : [])
      expect(skipped.filter(({ section }) => section === 'sites')).toMatchObject(
        others.map((name) => ({
          org: 'bakery',
          name,
          reason: expect.stringContaining('belongs to the set'),
        })),
      )
      const { changes } = await acme.plan({ sites: document.sites! }, { set, adopt: true })
      expect(changes.every(({ action, name }) => action === 'adopt' && name !== own)).toBe(true)
    }
  })
})
