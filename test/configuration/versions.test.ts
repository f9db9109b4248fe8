import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { it as always, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addOrgUser, buildWorld } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

const filterOf = (org: string | undefined, name: string, field = 'hostname') => ({
  ...(org !== undefined && { org }),
  name,
  conditions: { operator: 'AND', conditions: [{ field, operator: 'contains', value: name }] },
})
/** Until a transaction waits for the lock of another. */
async function untilWaiting({ storage }: TestService): Promise<void> {
  for (let tries = 0; tries < 1000; tries += 1) {
    const { rows } = await sql`
      select 1 from pg_locks l join pg_stat_activity a using (pid)
      where not l.granted and a.datname = current_database()`.execute(storage.heavy)
    if (rows.length > 0) return
    await sleep(10)
  }
  throw new Error('No transaction waits')
}

const conflict = { status: 409, code: 'conflict' }

onEveryDatabase((kind, open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = configurationOf(service)
    return { service, world, bakery: by(world.tokens.bakery), acme: by(world.tokens.acme) }
  }

  describe('an apply', () => {
    it('is refused once a name that its files refer to means another object', async () => {
      const { bakery } = await start()
      const make = (actions: string[]) =>
        bakery.client.call(api.roles.create, {
          body: {
            name: 'Night',
            permissions: actions.map((action) => ({ resource: 'devices', action })) as never,
          },
        })
      await bakery.apply({ memberships: [{ email: 'ada@example.com', name: 'Ada', role: 'Org Viewer' }] })
      const { id } = await make(['read'])
      const files = { memberships: [{ email: 'ada@example.com', role: 'Night' }] }
      const { version, plannedAt } = await bakery.plan(files)
      await bakery.client.call(api.roles.remove, { params: { id } })
      await make(['read', 'write', 'delete'])
      const body = { document: files, version, plannedAt }
      await expect(bakery.client.call(api.configuration.apply, { query: {}, body })).rejects.toMatchObject({
        ...conflict,
        message: expect.stringContaining('roles "Night"'),
      })
    })

    it('is refused once a role above one that its files refer to has more permissions', async () => {
      const { bakery } = await start()
      const make = async (name: string, parentRoleId?: string) => {
        const body = { name, permissions: [{ resource: 'devices', action: 'read' }], parentRoleId } as const
        return (await bakery.client.call(api.roles.create, { body: body as never })).id
      }
      const top = await make('Top')
      await make('Night', await make('Middle', top))
      const files = { memberships: [{ email: 'ada@example.com', name: 'Ada', role: 'Night' }] }
      const { version, plannedAt } = await bakery.plan(files)
      const permissions = ['read', 'delete'].map((action) => ({ resource: 'devices', action }))
      await bakery.client.call(api.roles.update, { params: { id: top }, body: { permissions } as never })
      const body = { document: files, version, plannedAt }
      await expect(bakery.client.call(api.configuration.apply, { query: {}, body })).rejects.toMatchObject({
        ...conflict,
        message: expect.stringContaining('roles "Top"'),
      })
    })

    it('is refused once another set has taken over an object, and names who did it', async () => {
      const { world, bakery } = await start()
      await bakery.client.call(api.sites.create, { body: { orgId: world.orgs.bakery.id, name: 'Annex' } })
      const document = { sites: [{ name: 'Annex' }] }
      const { version, plannedAt } = await bakery.plan(document, { adopt: true })
      await bakery.apply(document, { adopt: true, set: 'other' })
      const body = { document, adopt: true, version, plannedAt }
      await expect(bakery.client.call(api.configuration.apply, { query: {}, body })).rejects.toMatchObject({
        ...conflict,
        message: expect.stringContaining('config.adopt "Annex" (by bakery-admin@'),
      })
    })

    it('is refused once organizations have exchanged their slugs', async () => {
      const { acme } = await start()
      const [a, b] = await Promise.all(
        ['aaa', 'bbb'].map((slug) => acme.client.call(api.orgs.create, { body: { name: slug, slug } })),
      )
      const files = { filters: [filterOf('aaa', 'F')] }
      const { version } = await acme.plan(files)
      const called = (id: string, slug: string) =>
        acme.client.call(api.orgs.update, { params: { id }, body: { slug } })
      await called(a!.id, 'ccc')
      await called(b!.id, 'aaa')
      await called(a!.id, 'bbb')
      await expect(acme.apply(files, {}, version)).rejects.toMatchObject(conflict)
    })

    it('goes through after somebody has changed what they are called themselves', async () => {
      const { service, world, bakery } = await start()
      await addOrgUser(service, 'zed', world.orgs.bakery.id, {})
      const { document } = await bakery.exported()
      const zed = document.memberships!.find(({ email }) => String(email).startsWith('zed'))!
      const files = { memberships: [{ ...zed, role: 'Org Viewer' }] }
      const { version } = await bakery.plan(files, { adopt: true })
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ name: 'Zed Other' }).where('email', 'like', 'zed%').execute(),
      )
      expect((await bakery.apply(files, { adopt: true }, version)).totals).toMatchObject({ update: 1 })
    })
  })

  // On SQLite one write follows another.
  describe.runIf(kind === 'postgres')('an apply beside other writes', () => {
    always('does not overwrite what somebody changes while it runs', async () => {
      const { service, bakery } = await start()
      const files = (content: string) => ({
        scripts: [{ name: 'C', osTypes: ['linux'], language: 'bash', content }],
      })
      await bakery.apply(files('one'))
      const { version, plannedAt } = await bakery.plan(files('two'))
      const { promise: isChanged, resolve: changed } = Promise.withResolvers<void>()
      const { promise: isApplying, resolve: goOn } = Promise.withResolvers<void>()
      const byHand = service.storage.write(async (tx) => {
        await tx
          .updateTable('scripts')
          .set({ content: 'by hand', updated_at: '2999-01-01T00:00:00.000Z' })
          .where('name', '=', 'C')
          .execute()
        changed()
        await isApplying
      })
      await isChanged
      const body = { document: files('two'), version, plannedAt }
      const applied = bakery.client.call(api.configuration.apply, { query: {}, body })
      const outcome = expect(applied).rejects.toMatchObject({
        ...conflict,
        message: expect.stringContaining('scripts "C"'),
      })
      await untilWaiting(service)
      goOn()
      await byHand
      await outcome
      const { document } = await bakery.exported()
      expect(document.scripts!.find(({ name }) => name === 'C')).toMatchObject({ content: 'by hand' })
    })

    // A row that an apply has just made is seen by no other.
    for (const { isNew, who } of [
      { isNew: false, who: 'its partner' },
      { isNew: true, who: 'its partner' },
      { isNew: true, who: 'the same organization' },
    ]) {
      always(`excludes another of ${who}, with ${isNew ? 'new sets' : 'sets that there are'}`, async () => {
        const { bakery, acme } = await start()
        const files = (own: string) => ({
          roles: ['X', ...Array.from({ length: 40 }, (_, at) => `${own}${at}`)].map((name) => ({
            org: 'bakery',
            name,
          })),
        })
        const sets = [
          { by: bakery, set: 'a' },
          { by: who === 'its partner' ? acme : bakery, set: 'b' },
        ]
        if (!isNew)
          for (const { by, set } of sets)
            await by.apply({ filters: [filterOf('bakery', `of ${set}`)] }, { set })
        const plans = await Promise.all(sets.map(({ by, set }) => by.plan(files(set), { set })))
        const outcomes = await Promise.allSettled(
          sets.map(({ by, set }, at) => by.apply(files(set), { set }, plans[at]!.version)),
        )
        const refused = outcomes.flatMap((one) => (one.status === 'rejected' ? one.reason : []))
        expect(refused).toMatchObject([conflict])
        const { data } = await bakery.client.call(api.roles.list, {})
        expect(data.filter(({ name }) => name === 'X')).toHaveLength(1)
      })
    }
  })

  describe('a plan', () => {
    it('shows token URLs and claims, which are no secrets, and keeps them for a rollback', async () => {
      const { acme } = await start()
      const policy = (use: string): Document => ({
        trustPolicies: [
          {
            org: 'bakery',
            name: 'CI',
            issuer: 'https://ci.example.com',
            claims: { sub: 'main', token_use: use },
            permissions: ['devices:read'],
          },
        ],
      })
      await acme.apply(policy('one'))
      const { applyId, changes } = await acme.apply(policy('two'))
      expect(changes).toMatchObject([
        { before: { claims: { token_use: 'one' } }, after: { claims: { token_use: 'two' } } },
      ])
      const params = { id: applyId }
      const { version, lost } = await acme.client.call(api.configurationApplies.plan, { params, body: {} })
      expect(lost).toEqual([])
      await acme.client.call(api.configurationApplies.rollback, { params, body: { version } })
      expect((await acme.plan(policy('one'))).changes).toEqual([])
    })

    it('takes an organization away with the roles, groups and sites that its members still have', async () => {
      const { acme } = await start()
      const whole: Document = {
        organizations: [{ slug: 'goes', name: 'Goes' }],
        sites: [{ org: 'goes', name: 'S' }],
        roles: [{ org: 'goes', name: 'R', permissions: ['devices:read'] }],
        deviceGroups: [{ org: 'goes', name: 'G', type: 'static' }],
        memberships: [
          { org: 'goes', email: 'a@example.com', name: 'A', role: 'R', sites: ['S'], deviceGroups: ['G'] },
        ],
      }
      await acme.apply(whole)
      const none = Object.fromEntries(Object.keys(whole).map((section) => [section, []]))
      const plan = await acme.plan(none, { prune: true })
      expect(plan.changes).toMatchObject([{ action: 'delete', section: 'organizations', name: 'goes' }])
      const { memberships: _, ...unmanaged } = none
      expect((await acme.plan(unmanaged, { prune: true })).changes).toEqual(plan.changes)
      expect((await acme.apply(none, { prune: true }, plan.version)).changes).toEqual(plan.changes)
      expect((await acme.plan(none, { prune: true })).changes).toEqual([])
    })

    it('needs no order of changes that allow one another', async () => {
      const { acme } = await start()
      const member = (name: string, role: string) => ({
        org: 'new',
        email: `${name}@example.com`,
        name,
        role,
      })
      const organizations = [{ slug: 'new', name: 'New' }]
      const before = [member('a', 'Org Admin'), member('b', 'Org Viewer')]
      await acme.apply({ organizations, memberships: before })
      const after = [member('a', 'Org Viewer'), member('b', 'Org Admin')]
      for (const memberships of [after, after.toReversed()])
        expect((await acme.plan({ organizations, memberships })).totals).toMatchObject({ update: 2 })
      expect((await acme.apply({ organizations, memberships: after })).totals).toMatchObject({ update: 2 })
      const chain = (names: string[]) => ({
        roles: names.map((name, at) => ({ org: 'new', name, ...(at > 0 && { parent: names[at - 1] }) })),
      })
      const names = Array.from({ length: 20 }, (_, at) => `r${String(at).padStart(2, '0')}`)
      await acme.apply(chain(names), { set: 'roles' })
      const reversed = names.toReversed()
      const turned = { roles: chain(reversed).roles.map((role) => ({ parent: null, ...role })) }
      await acme.apply(turned, { set: 'roles' })
      expect((await acme.plan(turned, { set: 'roles' })).changes).toEqual([])
    })

    it('keeps a site that somebody is limited to', async () => {
      const { acme } = await start()
      const sites = [{ org: 'bakery', name: 'S1' }]
      const email = 'ada@example.com'
      const memberships = [{ org: 'bakery', email, name: 'Ada', role: 'Org Viewer', sites: ['S1'] }]
      await acme.apply({ sites }, { set: 'places' })
      await acme.apply({ memberships }, { set: 'people' })
      await expect(acme.plan({ sites: [] }, { set: 'places', prune: true })).rejects.toMatchObject({
        status: 400,
        details: [
          {
            path: 'body.document.sites',
            message: 'cannot delete "S1": Site is still used by 1 membership',
          },
        ],
      })
    })

    it('names the faults of each organization, and those beside a secret that is missing', async () => {
      const { acme } = await start()
      const files = {
        filters: [filterOf('bakery', 'F', 'nosuch')],
        deviceGroups: [{ org: 'garage', name: 'G', type: 'dynamic', filter: 'F' }],
        webhooks: [{ org: 'bakery', name: 'W', url: 'http://plain.example.com', events: ['*'] }],
      }
      const faults = await acme.plan(files).then(
        () => [],
        ({ details }) => (details as { path: string }[]).map(({ path }) => path),
      )
      expect(faults).toEqual([
        expect.stringContaining('body.document.deviceGroups.0.filter'),
        expect.stringContaining('body.document.filters.0.conditions'),
        'body.document.webhooks.0.secret',
        'body.document.webhooks.0.url',
      ])
    })

    always('hides what is taken for a secret in every free object', async () => {
      const { acme } = await start()
      const free = (word: string) => ({
        password: `${word}-1`,
        list: [{ apiToken: `${word}-2` }],
        plain: word,
      })
      const files = (word: string): Document => ({
        organizations: [
          { slug: 'florist', name: 'Florist', billingContact: free(word), settings: free(word) },
        ],
        sites: [
          { org: 'florist', name: 'Shop', address: free(word), contact: free(word), settings: free(word) },
        ],
        scripts: [
          { name: 'S', osTypes: ['linux'], language: 'bash', content: 'true', parameters: free(word) },
        ],
      })
      const made = await acme.apply(files('one'))
      const { changes, applyId } = await acme.apply(files('two'))
      const params = { id: applyId }
      const back = await acme.client.call(api.configurationApplies.plan, { params, body: {} })
      const gone = await acme.plan(
        { organizations: [], sites: [], scripts: [] },
        { prune: true, pruneLimit: 9 },
      )
      const shown = JSON.stringify([made.changes, changes, back.changes, gone.changes])
      expect(shown).not.toMatch(/(one|two)-[12]/)
      const site = changes.find(({ section }) => section === 'sites')
      expect(site!.after!.contact).toEqual({
        password: '********',
        list: [{ apiToken: '********' }],
        plain: 'two',
      })
    })
  })
})
