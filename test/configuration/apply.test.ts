import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { addOrgUser, addPartnerUser, addRole, buildWorld } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

const script = { osTypes: ['linux' as const], language: 'bash' as const, content: 'true\n' }
const online = {
  operator: 'AND',
  conditions: [{ field: 'status', operator: 'equals', value: 'online' }],
}
const refused = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = configurationOf(service)
    return { service, world, by, acme: by(world.tokens.acme), bakery: by(world.tokens.bakery) }
  }

  /** Everything at once, in an order in which nothing can be made. */
  const whole: Document = {
    scripts: [
      { org: 'florist', name: 'Clean', ...script },
      { name: 'For all', ...script, timeoutSeconds: 60 },
    ],
    deviceGroups: [
      { org: 'florist', name: 'Tills', parent: 'All', site: 'Store' },
      { org: 'florist', name: 'All' },
      { org: 'florist', name: 'Online', type: 'dynamic', filter: 'Online' },
    ],
    filters: [{ org: 'florist', name: 'Online', conditions: online }],
    roles: [
      { org: 'florist', name: 'Lead', parent: 'Night', permissions: ['sites:read'] },
      { org: 'florist', name: 'Night', parent: 'Org Viewer', permissions: ['devices:execute'] },
      { name: 'Watcher', permissions: ['alerts:read'] },
    ],
    sites: [{ org: 'florist', name: 'Store', timezone: 'Europe/Paris' }],
    organizations: [{ slug: 'florist', name: 'Florist', maxDevices: 10, settings: { color: 'green' } }],
  }
  const lines = (changes: { action: string; section: string; org: string | null; name: string }[]) =>
    changes.map(({ action, section, org, name }) => `${action} ${section} ${org ?? ''}/${name}`)

  describe('a plan', () => {
    it('says what an apply does, in the order of dependence, and changes nothing', async () => {
      const { service, acme } = await start()
      const before = await dump(service.storage)
      const plan = await acme.plan(whole)
      expect(lines(plan.changes)).toEqual([
        'create organizations /florist',
        'create sites florist/Store',
        'create roles florist/Night',
        'create roles florist/Lead',
        'create roles /Watcher',
        'create filters florist/Online',
        'create deviceGroups florist/All',
        'create deviceGroups florist/Tills',
        'create deviceGroups florist/Online',
        'create scripts florist/Clean',
        'create scripts /For all',
      ])
      expect(plan.totals).toEqual({
        create: 11,
        update: 0,
        delete: 0,
        adopt: 0,
        release: 0,
        refused: 0,
        left: 0,
      })
      expect(changed(before, await dump(service.storage))).toEqual([])
    })

    it('shows which fields change, and hides what may be a secret', async () => {
      const { acme } = await start()
      await acme.apply(whole)
      const sites = [{ org: 'florist', name: 'Store', timezone: 'UTC', settings: { apiKey: 'hush-hush' } }]
      const { changes } = await acme.plan({ sites })
      expect(changes).toMatchObject([
        {
          action: 'update',
          before: { timezone: 'Europe/Paris' },
          after: { timezone: 'UTC', settings: { apiKey: '********' } },
          id: expect.any(String),
          refused: null,
        },
      ])
      expect(JSON.stringify(changes)).not.toContain('hush-hush')
    })

    it('names every fault at once, at its place in the request', async () => {
      const { service, acme } = await start()
      const before = await dump(service.storage)
      const wrong: Document = {
        organizations: [
          { slug: 'Not A Slug', name: 'x' },
          { slug: 'garage', name: 'Taken' },
        ],
        sites: [{ org: 'nowhere', name: 'a' }, { name: 'b' }, { org: 'bakery', name: 'c', timezone: 'Mars' }],
        roles: [
          { org: 'bakery', name: 'p', parent: 'Nobody' },
          { name: 'q', permissions: ['devices:juggle'] },
          { name: 'r', parent: 's' },
          { name: 's', parent: 'r' },
        ],
        filters: [
          { org: 'bakery', name: 'f', conditions: { operator: 'AND', conditions: [{ field: 'x' }] } },
        ],
        deviceGroups: [
          { org: 'bakery', name: 'g', type: 'dynamic' },
          { org: 'bakery', name: 'h', filter: 'f' },
        ],
        scripts: [
          { name: 't', ...script },
          { name: 't', ...script },
          { name: 'u', language: 'bash' },
        ],
      }
      const failure = await acme.plan(wrong).catch((error: unknown) => error)
      expect(failure).toMatchObject({ status: 400, code: 'invalid_request' })
      const paths = (failure as { details: { path: string }[] }).details.map(({ path }) =>
        path.replace('body.document.', ''),
      )
      expect([...new Set(paths)]).toEqual(
        expect.arrayContaining([
          'organizations.0.slug',
          'organizations.1',
          'sites.0.org',
          'sites.1.org',
          'sites.2.timezone',
          'roles.0.parent',
          'roles.1.permissions.0',
          'scripts.1.name',
          'scripts.2.osTypes',
        ]),
      )
      expect(paths.some((path) => path.startsWith('filters.0.conditions'))).toBe(true)
      expect(paths.some((path) => path.startsWith('deviceGroups.0'))).toBe(true)
      expect(paths.some((path) => /^roles\.[23]/.test(path))).toBe(true)
      // It names a filter that is in the file, so that it is not at fault itself.
      expect(paths.some((path) => path.startsWith('deviceGroups.1'))).toBe(false)
      expect(changed(before, await dump(service.storage))).toEqual([])
    })
  })

  describe('an apply', () => {
    it('does what the plan says, with an audit entry of each change under one id', async () => {
      const { service, acme } = await start()
      const plan = await acme.plan(whole)
      const news = await newEntries(service)
      const done = await acme.apply(whole, { revision: '6f2c1e9' })
      expect(lines(done.changes)).toEqual(lines(plan.changes))
      const entries = await news()
      const own = entries.filter(({ action }) => action !== 'config.apply')
      const named = (all: { name: string }[]) => all.map(({ name }) => name).sort()
      expect(own.map(({ resourceName }) => resourceName).sort()).toEqual(
        named(
          done.changes.map(({ section, name }) => ({ name: section === 'organizations' ? 'Florist' : name })),
        ),
      )
      const { applyId } = done
      for (const { details } of own) {
        expect(details).toMatchObject({ configuration: { applyId, set: 'default', revision: '6f2c1e9' } })
      }
      expect(entries.filter(({ action }) => action === 'config.apply')).toMatchObject([
        { resourceId: applyId, details: { totals: done.totals, configuration: { applyId } } },
      ])
      expect(await acme.sets()).toMatchObject([
        { name: 'default', objects: 11, revision: '6f2c1e9', appliedBy: expect.stringContaining('acme') },
      ])
    })

    it('changes nothing the second time, nor do the files that it exports', async () => {
      const { acme } = await start()
      await acme.apply(whole)
      expect((await acme.plan(whole)).changes).toEqual([])
      const { document, skipped } = await acme.exported()
      expect(skipped).toEqual([])
      const plan = await acme.plan(document, { adopt: true })
      expect(plan.changes.filter(({ action }) => action !== 'adopt')).toEqual([])
      expect(plan.changes.length).toBeGreaterThan(5)
    })

    it('applies all or nothing', async () => {
      const { service, acme } = await start()
      const before = await dump(service.storage)
      const { version } = await acme.plan(whole)
      const wrong = { ...whole, sites: [...whole.sites!, { org: 'florist', name: 'x', timezone: 'Mars' }] }
      await expect(acme.apply(wrong, {}, version)).rejects.toEqual(refused(400, 'invalid_request'))
      const after = await dump(service.storage)
      expect(changed(before, after).filter((line) => !/idempotency/.test(line))).toEqual([])
    })

    it('renames by the former name, and keeps the id', async () => {
      const { acme } = await start()
      await acme.apply(whole)
      const renamed = {
        organizations: [{ slug: 'flowers', name: 'Florist', renamedFrom: 'florist' }],
        sites: [{ org: 'flowers', name: 'Shop', renamedFrom: 'Store' }],
      }
      const { changes } = await acme.apply(renamed)
      expect(changes).toMatchObject([
        { action: 'update', name: 'flowers', renamedFrom: 'florist', after: { slug: 'flowers' } },
        { action: 'update', org: 'flowers', name: 'Shop', renamedFrom: 'Store' },
      ])
      expect((await acme.plan(renamed)).changes).toEqual([])
    })

    it('changes only what one can change, and says so of the rest', async () => {
      const { acme } = await start()
      await acme.apply(whole)
      const deviceGroups = [{ org: 'florist', name: 'All', type: 'dynamic' }]
      await expect(acme.plan({ deviceGroups })).rejects.toMatchObject({
        details: [
          {
            path: 'body.document.deviceGroups.0.type',
            message: 'cannot be changed: delete it and create another',
          },
        ],
      })
    })

    it('is refused when what it was planned for has moved', async () => {
      const { acme, by, world } = await start()
      const { version } = await acme.plan(whole)
      await acme.client.call(api.orgs.create, { body: { slug: 'new', name: 'New' } })
      await expect(acme.apply(whole, {}, version)).rejects.toEqual(refused(409, 'conflict'))
      const body = { document: whole, version, plannedAt: '2020-01-01T00:00:00.000Z' }
      await expect(acme.client.call(api.configuration.apply, { body })).rejects.toMatchObject({
        message: expect.stringContaining('organizations "new" ('),
      })
      const again = await acme.plan(whole)
      expect(again.version).not.toBe(version)
      // What another section has does not count.
      const { id: orgId, deviceId } = world.orgs.bakery
      await by(world.tokens.acme).client.call(api.alerts.create, {
        body: { orgId, deviceId, severity: 'high', title: 'smoke' },
      })
      await acme.apply(whole, {}, again.version)
    })

    it('does what the plan showed, or nothing', async () => {
      const { acme, by, world } = await start()
      const set = { prune: true, pruneLimit: 9 }
      await acme.apply(whole, set)
      const empty = { ...whole, organizations: [] as Record<string, unknown>[] }
      const rest = Object.fromEntries(Object.keys(whole).map((section) => [section, []]))
      // Other files, or other flags, than those of the plan.
      const { version } = await acme.plan(rest, set)
      const scripts = whole.scripts!.filter(({ name }) => name === 'For all')
      await expect(acme.apply({ ...rest, scripts }, set, version)).rejects.toEqual(refused(409, 'conflict'))
      await expect(acme.apply(rest, { ...set, pruneLimit: 8 }, version)).rejects.toEqual(
        refused(409, 'conflict'),
      )
      // More ends with an organization than the plan said.
      const deletion = { organizations: empty.organizations }
      const shown = await acme.plan(deletion, set)
      expect(shown.changes).toMatchObject([{ action: 'delete', name: 'florist' }])
      const florist = (await acme.client.call(api.orgs.list)).data.find(({ slug }) => slug === 'florist')!
      await by(world.tokens.acme, florist.id).client.call(api.enrollmentKeys.create, {
        body: { orgId: florist.id, name: 'late' },
      })
      await expect(acme.apply(deletion, set, shown.version)).rejects.toEqual(refused(409, 'conflict'))
      expect((await acme.apply(deletion, set)).totals).toMatchObject({ delete: 1 })
    })

    it('of two at once happens once', async () => {
      const { acme } = await start()
      const { version } = await acme.plan(whole)
      const both = await Promise.allSettled([acme.apply(whole, {}, version), acme.apply(whole, {}, version)])
      expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
      expect(both.find(({ status }) => status === 'rejected')).toMatchObject({
        reason: { status: 409, code: 'conflict' },
      })
      expect((await acme.plan(whole)).changes).toEqual([])
    })

    it('makes at most 1000 changes', async () => {
      const { acme } = await start()
      const scripts = Array.from({ length: 1001 }, (_, n) => ({ name: `script ${n}`, ...script }))
      await expect(acme.plan({ scripts })).rejects.toMatchObject({ code: 'invalid_request' })
    })
  })

  describe('a set', () => {
    it('takes over what exists only when it is told to, and nothing of another set', async () => {
      const { service, world, acme } = await start()
      const mine = { sites: [{ org: 'bakery', name: 'bakery site', timezone: 'Europe/Paris' }] }
      await expect(acme.plan(mine)).rejects.toMatchObject({
        details: [{ path: 'body.document.sites.0', message: expect.stringContaining('--adopt') }],
      })
      const news = await newEntries(service)
      const { changes } = await acme.apply(mine, { adopt: true, set: 'one' })
      expect(changes).toMatchObject([
        { action: 'adopt', id: world.orgs.bakery.siteId },
        { action: 'update', after: { timezone: 'Europe/Paris' } },
      ])
      const actions = (await news()).map(({ action }) => action).sort()
      expect(actions).toEqual(['config.adopt', 'config.apply', 'site.update'])
      await expect(acme.plan(mine, { adopt: true, set: 'two' })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('belongs to the set "one"') }],
      })
    })

    it('manages what it has, also where somebody makes another of the same name', async () => {
      const { acme, bakery, world } = await start()
      const files = { sites: [{ org: 'bakery', name: 'Annex', timezone: 'Europe/Paris' }] }
      await acme.apply(files)
      await bakery.client.call(api.sites.create, { body: { orgId: world.orgs.bakery.id, name: 'Annex' } })
      expect((await acme.plan(files)).changes).toEqual([])
    })

    it('takes over nothing that its caller may not change', async () => {
      const { service, world, acme, by } = await start()
      await acme.client.call(api.scripts.create, { body: { name: 'Ours', ...script } })
      const some = by(await addPartnerUser(service, 'some', world.partners.acme, [world.orgs.bakery.id]))
      const mine = { scripts: [{ name: 'Ours', ...script }] }
      const { changes } = await some.plan(mine, { adopt: true })
      expect(changes).toMatchObject([{ action: 'adopt', refused: expect.any(String) }])
      const error = await some.apply(mine, { adopt: true }).catch((caught: unknown) => caught)
      expect(error).toMatchObject({ status: 403 })
      expect(await acme.sets()).toEqual([])
    })

    it('shows to whoever may only plan what it would change of what it takes over', async () => {
      const { service, world, acme, bakery, by } = await start()
      const { id: orgId } = world.orgs.bakery
      await bakery.client.call(api.scripts.create, { body: { orgId, name: 'Clean', ...script } })
      const hook = { name: 'Hook', url: 'https://hooks.example.com/in', events: ['device.enrolled' as const] }
      await bakery.client.call(api.webhooks.create, { body: { orgId, ...hook, secret: 'one-secret' } })
      const reads = ['config:read', 'scripts:read', 'organizations:read']
      const reader = by(
        await addOrgUser(service, 'reader', orgId, { role: await addRole(service, orgId, 'Reader', reads) }),
      )
      const files = {
        scripts: [{ name: 'Clean', ...script, content: 'rm -rf /' }],
        webhooks: [{ ...hook, secret: 'two-secret', retryPolicy: { maxRetries: 2 } }],
      }
      const { changes, version, totals } = await reader.plan(files, { adopt: true })
      const why = expect.stringContaining('ermission')
      const [adopted, content, ...hooks] = changes
      expect([adopted, content]).toMatchObject([
        { action: 'adopt', section: 'scripts', refused: why },
        {
          action: 'update',
          section: 'scripts',
          before: { content: script.content },
          after: { content: 'rm -rf /' },
          refused: why,
        },
      ])
      expect(hooks[0]).toMatchObject({ action: 'adopt', section: 'webhooks', refused: why })
      const names = hooks.slice(1).flatMap(({ after }) => Object.keys(after!))
      expect(names.toSorted()).toEqual(['retryPolicy', 'secret'])
      expect(JSON.stringify(changes)).not.toMatch(/(one|two)-secret/)
      expect(totals).toMatchObject({ adopt: 2, refused: changes.length })
      await expect(reader.apply(files, { adopt: true }, version)).rejects.toMatchObject({ status: 403 })
      const appliers = by(
        await addOrgUser(service, 'applier', orgId, {
          role: await addRole(service, orgId, 'Applier', [...reads, 'config:apply']),
        }),
      )
      await expect(appliers.apply(files, { adopt: true }, version)).rejects.toMatchObject({ status: 403 })
      expect(await bakery.sets()).toEqual([])
      // Refused to one, and the same to somebody who may.
      const done = await bakery.apply(files, { adopt: true }, version)
      expect(done.totals).toMatchObject({ refused: 0 })
      expect(done.changes.map(({ action, section }) => [action, section])).toEqual(
        changes.map(({ action, section }) => [action, section]),
      )
      expect(await acme.sets()).toEqual([])
    })

    it('shows as refused what an endpoint refuses of what it takes over', async () => {
      const { service, world, acme, by } = await start()
      await acme.client.call(api.scripts.create, { body: { name: 'Ours', ...script } })
      const some = by(await addPartnerUser(service, 'some', world.partners.acme, [world.orgs.bakery.id]))
      const mine = { scripts: [{ name: 'Ours', ...script, content: 'other' }] }
      const { changes } = await some.plan(mine, { adopt: true })
      expect(changes).toMatchObject([
        { action: 'adopt', refused: expect.any(String) },
        { action: 'update', after: { content: 'other' }, refused: expect.any(String) },
      ])
      await expect(some.apply(mine, { adopt: true })).rejects.toMatchObject({ status: 403 })
      expect(await acme.sets()).toEqual([])
    })

    it('of an organization does not touch what a set of the partner owns', async () => {
      const { acme, bakery } = await start()
      await acme.apply({ sites: [{ org: 'bakery', name: 'Annex' }] }, { set: 'one' })
      const files = { sites: [{ name: 'Annex' }] }
      for (const set of ['one', 'two']) {
        await expect(bakery.plan(files, { set, adopt: true })).rejects.toMatchObject({
          details: [{ message: expect.stringContaining('the set "one" of the partner') }],
        })
      }
      const { left } = await bakery.plan({ sites: [] }, { set: 'one', prune: true })
      expect(left).toEqual([])
    })

    it('does not manage a section that no file has, and [] means none', async () => {
      const { acme } = await start()
      await acme.apply(whole)
      expect(await acme.plan({ sites: whole.sites! })).toMatchObject({ changes: [], left: [] })
      const none = await acme.plan({ sites: [], scripts: [] })
      expect(none.changes).toEqual([])
      expect(none.left).toEqual([
        { section: 'scripts', org: 'florist', name: 'Clean' },
        { section: 'scripts', org: null, name: 'For all' },
        { section: 'sites', org: 'florist', name: 'Store' },
      ])
    })

    it('deletes what no file has any more when told to, children first, and says what ends with it', async () => {
      const { service, acme } = await start()
      await acme.apply(whole)
      const empty = Object.fromEntries(Object.keys(whole).map((section) => [section, []]))
      const few = await acme.plan(empty, { prune: true })
      expect(few.changes.every(({ action }) => action === 'delete')).toBe(true)
      expect(few.changes.find(({ section }) => section === 'roles')!.refused).toContain('--prune-limit 3')
      await expect(acme.apply(empty, { prune: true }, few.version)).rejects.toMatchObject({
        code: 'invalid_request',
        details: expect.arrayContaining([expect.objectContaining({ path: 'body.pruneLimit' })]),
      })
      const plan = await acme.plan(empty, { prune: true, pruneLimit: 20 })
      expect(plan.totals).toMatchObject({ delete: 11, refused: 0 })
      const order = lines(plan.changes)
      expect(order.indexOf('delete roles florist/Lead')).toBeLessThan(
        order.indexOf('delete roles florist/Night'),
      )
      expect(order.at(-1)).toBe('delete organizations /florist')
      expect(plan.changes.at(-1)!.ends).toMatchObject({ devices: 0 })
      const news = await newEntries(service)
      const done = await acme.apply(empty, { prune: true, pruneLimit: 20 })
      expect(lines(done.changes)).toEqual(order)
      expect((await news()).filter(({ action }) => action.endsWith('.delete'))).toHaveLength(11)
      expect(await acme.sets()).toEqual([])
    })

    it('forgets objects that were deleted otherwise, and itself when it owns nothing', async () => {
      const { service, world, acme } = await start()
      await acme.apply(
        {
          sites: [
            { org: 'bakery', name: 'a' },
            { org: 'bakery', name: 'b' },
          ],
        },
        { set: 'one' },
      )
      const { data } = await acme.client.call(api.sites.list, { query: { orgId: world.orgs.bakery.id } })
      for (const site of data.filter(({ name }) => name === 'a' || name === 'b'))
        await acme.client.call(api.sites.remove, { params: { id: site.id } })
      await acme.apply({ sites: [] }, { set: 'two' })
      expect(await acme.sets()).toEqual([])
      expect(await service.storage.read.selectFrom('config_objects').selectAll().execute()).toEqual([])
    })

    it('is one of at most 100 of its tenant', async () => {
      const { service, world, acme } = await start()
      const partner_id = world.partners.acme
      await service.storage.write(async (tx) => {
        for (let n = 0; n < 100; n += 1) {
          const row = { id: `s${n}`, partner_id, org_id: null, owner: partner_id, name: `set-${n}` }
          await tx
            .insertInto('config_sets')
            .values({ ...row, revision: null, applied_at: '', applied_by: '' })
            .execute()
        }
      })
      await expect(acme.apply({ sites: [] }, { set: 'another' })).rejects.toEqual(
        refused(403, 'quota_exceeded'),
      )
    })
  })

  describe('the caller', () => {
    it('who may only plan sees what would be refused, and applies nothing', async () => {
      const { service, world, by } = await start()
      const { id } = world.orgs.bakery
      const roleId = await addRole(service, id, 'Planner', ['config:read', 'scripts:read', 'devices:read'])
      const planner = by(await addOrgUser(service, 'planner', id, { role: roleId }))
      const files = {
        filters: [{ name: 'Online', conditions: online }],
        deviceGroups: [{ name: 'Online', type: 'dynamic', filter: 'Online' }],
        scripts: [{ name: 'Clean', ...script }],
      }
      const plan = await planner.plan(files)
      expect(plan.totals).toMatchObject({ create: 3, refused: 3 })
      await expect(planner.apply(files, {}, plan.version)).rejects.toEqual(refused(403, 'forbidden'))
      // A section that the lists do not show either.
      await expect(planner.plan({ sites: [] })).rejects.toEqual(refused(403, 'forbidden'))
      const { document, skipped } = await planner.exported()
      expect(Object.keys(document).sort()).toEqual(['deviceGroups', 'filters', 'scripts'])
      expect(skipped.map(({ section }) => section)).toEqual([
        'organizations',
        'sites',
        'roles',
        'memberships',
        'webhooks',
        'trustPolicies',
        'ssoProviders',
        'apiKeys',
        'enrollmentKeys',
      ])
    })

    it('who may apply still needs the permission of each single call', async () => {
      const { service, world, by } = await start()
      const { id } = world.orgs.bakery
      const permissions = ['config:read', 'config:apply', 'scripts:read', 'scripts:write', 'devices:read']
      const roleId = await addRole(service, id, 'Applier', permissions)
      const applier = by(await addOrgUser(service, 'applier', id, { role: roleId }))
      const before = await dump(service.storage)
      const scripts = [{ name: 'Clean', ...script }]
      const filters = [{ name: 'Online', conditions: online }]
      const both = applier.apply({ scripts, filters })
      await expect(both).rejects.toMatchObject({
        code: 'forbidden',
        message: expect.stringContaining('filters'),
      })
      const rows = changed(before, await dump(service.storage))
      expect(rows.filter((line) => /^(scripts|saved_filters|config)/.test(line))).toEqual([])
      await applier.apply({ scripts })
    })

    it('cannot make a role with permissions that they do not hold', async () => {
      const { service, world, by } = await start()
      const { id } = world.orgs.bakery
      const permissions = ['config:read', 'config:apply', 'users:read', 'users:write']
      const roleId = await addRole(service, id, 'Applier', permissions)
      const applier = by(await addOrgUser(service, 'applier', id, { role: roleId }))
      const roles = [{ name: 'Mighty', permissions: ['devices:execute'] }]
      expect((await applier.plan({ roles })).changes).toMatchObject([
        { refused: expect.stringContaining('devices:execute') },
      ])
      await expect(applier.apply({ roles })).rejects.toEqual(refused(403, 'forbidden'))
    })

    it('of a pipeline is an API key with the permissions of what it applies', async () => {
      const { world, by, bakery, service } = await start()
      const key = async (scopes: string[]) => {
        const { key: secret } = await bakery.client.call(api.apiKeys.create, {
          body: { name: scopes.join().slice(0, 50), scopes },
        })
        const client = service.client(undefined, { 'x-api-key': secret })
        return (body: { document: Document; version?: string }) =>
          body.version === undefined
            ? client.call(api.configuration.plan, { body })
            : client.call(api.configuration.apply, { body: { ...body, version: body.version } })
      }
      const document = { scripts: [{ name: 'Clean', ...script }] }
      const pullRequest = await key(['config:read', 'scripts:read'])
      const main = await key(['config:read', 'config:apply', 'scripts:read', 'scripts:write'])
      const { version } = await pullRequest({ document })
      await expect(pullRequest({ document, version })).rejects.toEqual(refused(403, 'api_key_scope'))
      expect((await main({ document, version })).totals).toMatchObject({ create: 1, refused: 0 })
      await expect(main({ document: { sites: [] } })).rejects.toMatchObject({
        code: 'forbidden',
        message: 'You may not read sites: this is not open to API keys',
      })
      expect((await by(world.tokens.bakery).plan(document)).changes).toEqual([])
    })

    it('who sees some organizations makes one, and sites in it', async () => {
      const { service, world, by } = await start()
      const partner = world.partners.acme
      const some = by(await addPartnerUser(service, 'some', partner, [world.orgs.bakery.id]))
      const files = {
        organizations: [{ slug: 'florist', name: 'Florist' }],
        sites: [{ org: 'florist', name: 'Store' }],
      }
      expect((await some.apply(files)).totals).toMatchObject({ create: 2, refused: 0 })
      await expect(some.plan({ sites: [{ org: 'garage', name: 'x' }] })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('"garage"') }],
      })
    })

    it('who sees some organizations may do no more in one by naming it', async () => {
      const { service, world, by } = await start()
      const { id } = world.orgs.bakery
      const token = await addPartnerUser(service, 'some', world.partners.acme, [id])
      const single = service.client(token).call(api.roles.list, { query: { orgId: id } })
      const why = await single.then(
        () => undefined,
        ({ code }: { code: string }) => code,
      )
      expect(why).toBe('partner_access_limited')
      const some = by(token, id)
      const roles = { roles: [{ name: 'Mine', permissions: ['devices:read'] }] }
      await expect(some.plan(roles)).rejects.toMatchObject({ status: 403 })
      await expect(some.apply(roles, {}, 'any')).rejects.toMatchObject({ status: 403 })
      const { document, skipped } = await some.exported()
      expect(document.roles).toBeUndefined()
      expect(skipped).toMatchObject([
        { section: 'roles', name: '*' },
        { section: 'memberships', name: '*' },
      ])
      const whole = await by(token).exported()
      expect(whole.document.organizations).toMatchObject([{ slug: 'bakery' }])
      expect(whole.skipped).toContainEqual(expect.objectContaining({ section: 'organizations', name: '*' }))
    })

    it('of the service names an organization or a partner; nobody else reaches further by naming one', async () => {
      const { service, world, by } = await start()
      await expect(by(world.tokens.system).plan({ sites: [] })).rejects.toEqual(
        refused(403, 'tenant_required'),
      )
      const { id } = world.orgs.bakery
      const system = by(world.tokens.system, id)
      expect((await system.apply({ sites: [{ name: 'Annex' }] })).totals).toMatchObject({ create: 1 })
      await expect(by(world.tokens.globex, id).plan({ sites: [] })).rejects.toEqual(
        refused(403, 'org_access_denied'),
      )
      const { acme: partnerId } = world.partners
      const whole = by(world.tokens.system, { partnerId })
      expect((await whole.apply({ sites: [{ org: 'garage', name: 'Depot' }] })).totals).toMatchObject({
        create: 1,
      })
      expect((await whole.sets()).map(({ name }) => name)).toEqual(['default'])
      for (const token of [world.tokens.globex, world.tokens.bakery]) {
        await expect(by(token, { partnerId }).exported()).rejects.toEqual(refused(403, 'partner_mismatch'))
      }
      const some = by(await addPartnerUser(service, 'limited', partnerId, [id]), { partnerId })
      const { document } = await some.exported()
      expect(new Set(document.sites!.map(({ org }) => org))).toEqual(new Set(['bakery']))
    })
  })

  describe('an export', () => {
    it('leaves out what a file cannot say, with the reason', async () => {
      const { acme, world } = await start()
      const { id: orgId } = world.orgs.bakery
      for (const _ of [1, 2]) await acme.client.call(api.sites.create, { body: { orgId, name: 'Twin' } })
      const { document, skipped, uncovered } = await acme.exported()
      expect(skipped).toMatchObject([
        { section: 'sites', org: 'bakery', name: 'Twin', reason: expect.stringContaining('several') },
        { section: 'sites', org: 'bakery', name: 'Twin' },
      ])
      expect(document.sites!.map(({ name }) => name)).toEqual(['bakery site', 'garage site'])
      expect(uncovered.map(({ what }) => what)).toEqual(
        expect.arrayContaining(['memberships.status', 'organizations.ssoConfig']),
      )
      await expect(acme.plan({ sites: [{ org: 'bakery', name: 'Twin' }] })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('there are 2 of sites named "Twin"') }],
      })
    })
  })
})
