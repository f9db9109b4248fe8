import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { ChainEntry } from '../../src/audit/chain.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import type { Plan } from '../../src/configuration/contract.ts'
import { permissions } from '../../src/core/permissions.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import '../random.ts'
import { addPartnerUser, addRole, buildWorld, newToken } from '../world.ts'

type Values = Record<string, unknown>
type Document = Record<string, Values[]>

/** Which organizations there may be, which objects of a section in each, and how often one is there to once that it is not. */
type Size = { slugs: readonly string[]; names: readonly string[]; freq: number }

const large: Size = { slugs: ['one', 'two', 'three'], names: ['a', 'b', 'c', 'd'], freq: 5 }
const small: Size = { slugs: ['one', 'two'], names: ['a', 'b'], freq: 2 }

/** A name of those before it that are there, or none. */
const above = (all: readonly Values[], at: number, pick: number): string | null => {
  const before = all.slice(0, at)
  return before.length === 0 || pick === 0 ? null : String(before[pick % before.length]!.name)
}

const conditions = (status: string) => ({
  operator: 'AND',
  conditions: [{ field: 'status', operator: 'equals', value: status }],
})
const pick = fc.integer({ min: 0, max: 9 })
const color = fc.constantFrom('red', 'green', 'blue')

/** Everything in one organization, or in the partner: what it refers to is there. */
const within = ({ names, freq }: Size, org: string | undefined) => {
  /** Some of the names, each with what `of` makes of it. */
  const some = (of: (name: string) => fc.Arbitrary<Values>) =>
    fc
      .tuple(...names.map((name) => fc.option(of(name), { nil: undefined, freq })))
      .map((all) => all.filter((one) => one !== undefined))
  return fc
    .record({
      sites: some((name) =>
        fc.record({
          name: fc.constant(name),
          timezone: fc.constantFrom('UTC', 'Europe/Paris'),
          settings: fc.record({ color }),
          contact: fc.option(fc.record({ name: color }), { nil: null }),
        }),
      ),
      roles: some((name) =>
        fc.record({
          name: fc.constant(name),
          permissions: fc.subarray(['devices:read', 'scripts:read', 'sites:write']),
          forceMfa: fc.boolean(),
          description: fc.option(color, { nil: null }),
          parent: pick,
        }),
      ),
      filters: some((name) =>
        fc.record({
          name: fc.constant(name),
          conditions: fc.constantFrom('online', 'offline').map(conditions),
        }),
      ),
      deviceGroups: some((name) => fc.record({ name: fc.constant(name), parent: pick, filter: pick })),
      scripts: some((name) =>
        fc.record({
          name: fc.constant(name),
          content: fc.string({ minLength: 1, maxLength: 300 }).filter((text) => !text.includes('\0')),
          language: fc.constantFrom('bash', 'python'),
          osTypes: fc.constantFrom(['linux'], ['linux', 'macos']),
        }),
      ),
      memberships: some((name) =>
        fc.record({
          email: fc.constant(`${name}@${org ?? 'partner'}.example.com`),
          name: fc.constant(name),
          role: fc.constantFrom('Viewer', 'Technician'),
          reach: pick,
        }),
      ),
      webhooks: some((name) =>
        fc.record(
          {
            name: fc.constant(name),
            url: fc.constantFrom(
              'https://one.example.com/a',
              'https://one.example.com/a?key=1',
              'https://two.example.com/a',
            ),
            secret: fc.constantFrom('one', 'two', null),
            events: fc.subarray(['device.enrolled', 'alert.triggered', 'patch.failed'], { minLength: 1 }),
            headers: fc.subarray([
              { key: 'X-One', value: 'one' },
              { key: 'X-Two', value: 'two' },
            ]),
            status: fc.constantFrom('active', 'paused'),
            retryPolicy: fc.record({ maxRetries: fc.integer({ min: 0, max: 9 }) }, { requiredKeys: [] }),
          },
          // A URL of another host comes with headers.
          { requiredKeys: ['name', 'url', 'secret', 'events', 'headers'] },
        ),
      ),
      trustPolicies: some((name) =>
        fc.record({
          name: fc.constant(name),
          issuer: fc.constant('https://ci.example.com'),
          claims: fc.record({ sub: color, team: color }, { requiredKeys: ['sub'] }),
          permissions: fc.subarray(['devices:read', 'scripts:read', 'sites:write'], { minLength: 1 }),
          status: fc.constantFrom('active', 'inactive'),
        }),
      ),
      ssoProviders: some((name) =>
        fc.record(
          {
            name: fc.constant(name),
            type: fc.constant('oidc'),
            preset: fc.constantFrom('okta', 'auth0', null),
            issuer: fc.constantFrom('https://one.example.com', 'https://two.example.com'),
            clientId: color,
            clientSecret: fc.constantFrom('one', 'two'),
            scopes: fc.constantFrom('openid', 'openid email'),
            allowedDomains: fc.constantFrom('example.com', '', null),
            autoProvision: fc.boolean(),
            isWhole: fc.boolean(),
            status: fc.constantFrom('active', 'testing', 'inactive'),
            defaultRole: pick,
          },
          { requiredKeys: ['name', 'type', 'issuer', 'clientId', 'clientSecret', 'isWhole', 'status'] },
        ),
      ),
    })
    .map(
      ({
        sites,
        roles,
        filters,
        deviceGroups,
        scripts,
        memberships,
        webhooks,
        trustPolicies,
        ssoProviders,
      }): Document => {
        const owned = (all: Values[]) => all.map((one) => ({ ...(org !== undefined && { org }), ...one }))
        const withParents = (all: Values[]): Values[] =>
          all.map((one, at) => ({ ...one, parent: above(all, at, Number(one.parent)) }))
        const groups = withParents(deviceGroups).map(({ filter, ...group }): Values => {
          const name = above(filters, filters.length, Number(filter))
          // Whether a group has a filter cannot be changed: the name decides it.
          const isDynamic = ['a', 'c'].includes(String(group.name)) && filters.length > 0
          const type = isDynamic ? 'dynamic' : 'static'
          const title = `${String(group.name)} ${type}`
          return { ...group, name: title, type, ...(isDynamic && { filter: name ?? filters[0]!.name }) }
        })
        const people = memberships.map(({ reach, role, ...person }): Values => {
          if (org === undefined)
            return {
              ...person,
              role: `Partner ${String(role)}`,
              orgAccess: Number(reach) > 4 ? 'all' : 'none',
            }
          const some = sites.slice(0, Number(reach) % 4).map(({ name }) => name)
          return { ...person, role: `Org ${String(role)}`, sites: some.length > 0 ? some : null }
        })
        const providers = ssoProviders.map(({ isWhole, status, defaultRole, ...provider }): Values => {
          const endpoints = ['authorizationUrl', 'tokenUrl', 'userInfoUrl', 'jwksUrl']
          const url = (endpoint: string) => (isWhole ? `https://idp.example.com/${endpoint}` : null)
          return {
            ...provider,
            ...Object.fromEntries(endpoints.map((endpoint) => [endpoint, url(endpoint)])),
            ...(defaultRole !== undefined && {
              defaultRole: above(roles, roles.length, Number(defaultRole)),
            }),
            status: isWhole ? status : 'inactive',
          }
        })
        const titles = new Set(groups.map(({ name }) => String(name)))
        const placed = groups.map((group) => ({
          ...group,
          parent:
            [...titles].find(
              (title) => group.parent !== null && title.startsWith(`${String(group.parent)} `),
            ) ?? null,
        }))
        return {
          ...(org !== undefined && {
            sites: owned(sites),
            filters: owned(filters),
            deviceGroups: owned(placed),
            webhooks: owned(webhooks),
            trustPolicies: owned(trustPolicies),
            ssoProviders: owned(providers),
          }),
          roles: owned(withParents(roles)),
          scripts: owned(scripts),
          memberships: owned(people),
        }
      },
    )
}

const day = fc.record(
  { start: fc.constantFrom('08:00', '09:00'), end: fc.constantFrom('17:00', '18:00'), closed: fc.boolean() },
  { requiredKeys: ['start', 'end'] },
)
const partner = fc.record(
  {
    slug: fc.constant('acme'),
    name: color,
    billingEmail: fc.constantFrom('bills@acme.example', null),
    settings: fc.record(
      {
        timezone: fc.constantFrom('UTC', 'Europe/Paris', null),
        contact: fc.record({ name: color, phone: fc.constantFrom('1', null) }, { requiredKeys: [] }),
        businessHours: fc.record({ preset: fc.constant('custom'), custom: fc.record({ monday: day }) }),
      },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: ['slug'] },
)

const documentOf = (size: Size) =>
  fc
    .tuple(
      fc.subarray([...size.slugs]),
      partner,
      fc.record(
        {
          maxDevices: fc.option(fc.integer({ min: 1, max: 9 }), { nil: null }),
          name: color,
          auditRetention: fc.record({ retentionDays: fc.constantFrom(365, 500, 730) }, { requiredKeys: [] }),
        },
        { requiredKeys: ['maxDevices', 'name'] },
      ),
      within(size, undefined),
      ...size.slugs.map((slug) => within(size, slug)),
    )
    .map(([present, ours, about, ...parts]): Document => {
      const whole: Document = {
        partners: [ours],
        organizations: [],
        sites: [],
        roles: [],
        filters: [],
        deviceGroups: [],
        scripts: [],
        memberships: [],
        webhooks: [],
        trustPolicies: [],
        ssoProviders: [],
      }
      for (const slug of present) if (slug !== undefined) whole.organizations!.push({ slug, ...about })
      const [ofPartner, ...ofOrgs] = parts
      const chosen = [ofPartner, ...ofOrgs.filter((_, at) => present.includes(size.slugs[at]!))]
      for (const part of chosen)
        for (const [section, objects] of Object.entries(part ?? {})) whole[section]!.push(...objects)
      return whole
    })

/** Mostly small: what goes wrong does so with a few objects, and many pairs are tried. */
const document = fc.oneof(
  { weight: 29, arbitrary: documentOf(small) },
  { weight: 1, arbitrary: documentOf(large) },
)

/** What the actions of the audit log begin with. */
const resources: Record<string, string> = {
  partners: 'partner',
  organizations: 'organization',
  sites: 'site',
  roles: 'role',
  filters: 'filter',
  deviceGroups: 'device_group',
  scripts: 'script',
  memberships: 'user',
  webhooks: 'webhook',
  trustPolicies: 'trust.policy',
  ssoProviders: 'sso.provider',
}

/** Actions of the audit log that have another name than the change of a plan. */
const actions: Record<string, string> = {
  'partner.settings.update': 'partner.update',
  'user.invite': 'user.create',
  'user.role.assign': 'user.update',
  'user.access.update': 'user.update',
  'user.remove': 'user.delete',
  'webhook.retry_policy.update': 'webhook.update',
  'audit.retention.update': 'organization.update',
  'sso.provider.status.update': 'sso.provider.update',
}
const inPlan = (action: string): string => actions[action] ?? action

/** The audit entries of an apply, besides its own. */
async function entriesOf(
  { storage }: TestService,
  { applyId, plannedAt }: { applyId: string; plannedAt: string },
) {
  await sealPending(storage)
  const rows = await storage.read
    .selectFrom('audit_logs')
    .select('canonical')
    .where('timestamp', '>=', plannedAt)
    .execute()
  const entries = rows.map(({ canonical }) => JSON.parse(canonical) as ChainEntry)
  const applyOf = ({ details }: ChainEntry) =>
    (details as { configuration?: { applyId?: string } }).configuration?.applyId
  return entries.filter((entry) => applyOf(entry) === applyId && entry.action !== 'config.apply')
}

/** Kinds with secrets, and with what people have to do again. */
const mayLose: string[] = ['webhooks', 'memberships', 'ssoProviders']

/** A document without the webhooks and identity providers of which a rollback says that it does not bring back everything. */
const without = (
  document: Document,
  lost: readonly { section: string; org: string | null; name: string }[],
) => {
  const kept = (section: string) =>
    document[section]!.filter(
      ({ org, name }) => !lost.some((one) => one.section === section && one.org === org && one.name === name),
    )
  return { ...document, webhooks: kept('webhooks'), ssoProviders: kept('ssoProviders') }
}

/** Everybody reads everything; what people may do besides who plan next to whoever may apply it. */
const lesser = { reader: [], people: ['sites', 'users'], tenants: ['organizations', 'scripts', 'devices'] }

/** What a plan would change, whoever planned it. */
const wouldChange = ({ version, changes }: Pick<Plan, 'version' | 'changes'>) => ({
  version,
  changes: changes.map(({ refused, ends, warning, ...change }) => JSON.stringify(change)).sort(),
})

onEveryDatabase((kind, open) => {
  let service: TestService
  let token: string
  const planners: string[] = []
  beforeAll(async () => {
    service = await startService(open)
    const { tokens, partners } = await buildWorld(service)
    token = tokens.acme
    for (const [name, resources] of Object.entries(lesser)) {
      const held = permissions.filter((one) =>
        ['read', ...resources].some((part) => one.split(':').includes(part)),
      )
      const role = await addRole(service, { partnerId: partners.acme }, name, held)
      planners.push(await addPartnerUser(service, name, partners.acme, 'all', role))
    }
  })
  afterAll(async () => service.close())

  describe('files, each after any other', () => {
    const options = { set: 'random', prune: true, pruneLimit: 1000 }

    it('do what their plan says, whoever plans, and what the audit log says, and then nothing, also after they are taken back', {
      timeout: 7_200_000,
    }, async () => {
      let client = service.client(token)
      const ours = { document: { partners: [{ slug: 'acme' }] }, set: 'random', adopt: true }
      const { version } = await client.call(api.configuration.plan, { body: ours })
      await client.call(api.configuration.apply, { body: { ...ours, version } })
      const plannersNow = () =>
        Promise.all(planners.map(async (planner) => service.client(await newToken(planner))))
      const plan = (files: Document, adopt = false) =>
        client.call(api.configuration.plan, { body: { ...options, adopt, document: files } })
      const rollBack = async (id: string) => {
        const params = { id }
        const pruning = { prune: true, pruneLimit: 1000 }
        const planned = await client.call(api.configurationApplies.plan, { params, body: pruning })
        for (const planner of await plannersNow()) {
          const seen = await planner.call(api.configurationApplies.plan, { params, body: pruning })
          expect(wouldChange(seen)).toEqual(wouldChange(planned))
        }
        const { version } = planned
        return client.call(api.configurationApplies.rollback, { params, body: { ...pruning, version } })
      }
      const property = fc.asyncProperty(document, async (files) => {
        // A token lasts a quarter of an hour, and the soak longer.
        client = service.client(await newToken(token))
        const before = await client.call(api.configuration.export)
        const planned = await plan(files)
        for (const planner of await plannersNow()) {
          const seen = await planner.call(api.configuration.plan, {
            body: { ...options, document: files },
          })
          expect(wouldChange(seen)).toEqual(wouldChange(planned))
        }
        expect(await client.call(api.configuration.export)).toEqual(before)
        const body = { ...options, document: files, version: planned.version }
        const done = await client.call(api.configuration.apply, { body })
        const said = ({ section, action, id }: (typeof done.changes)[number]) =>
          `${resources[section]}.${action} ${id ?? ''}`
        expect(done.changes.map(said)).toEqual(planned.changes.map(said))
        const entries = await entriesOf(service, done)
        const isCreate = ({ action }: ChainEntry) => inPlan(action).endsWith('.create')
        const made = new Set(entries.filter(isCreate).map(({ resourceId }) => resourceId))
        const recorded = entries.map(
          ({ action, resourceId }) => `${inPlan(action)} ${made.has(resourceId) ? '' : resourceId}`,
        )
        expect(recorded.sort()).toEqual(done.changes.map(said).sort())
        expect((await plan(files)).changes).toEqual([])
        const exported = await client.call(api.configuration.export)
        expect(exported.skipped).toEqual([])
        const { changes } = await plan(exported.document, true)
        expect(changes.filter(({ action }) => action !== 'adopt')).toEqual([])
        if (done.changes.length === 0) return
        const back = await rollBack(done.applyId)
        expect(
          back.lost.map(({ section }) => section).filter((section) => !mayLose.includes(section)),
        ).toEqual([])
        const returned = await client.call(api.configuration.export)
        expect(without(returned.document, back.lost)).toEqual(without(before.document, back.lost))
        if (back.changes.length === 0) return
        const forth = await rollBack(back.applyId)
        const again = await client.call(api.configuration.export)
        const lost = [...back.lost, ...forth.lost]
        expect(without(again.document, lost)).toEqual(without(exported.document, lost))
      })
      await fc.assert(property, {
        numRuns: depth(kind === 'sqlite' ? 20 : 5, 5000),
        endOnFailure: true,
      })
    })
  })
})
