import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { kinds, type Section, sections } from '../../src/configuration/contract.ts'
import { aboveStorage } from '../databases.ts'
import { startService } from '../harness.ts'
import { certificate } from '../sso/certificates.ts'
import { addPartnerUser, buildWorld } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

const org = 'bakery'
const conditions = (value: string) => ({
  operator: 'AND',
  conditions: [{ field: 'status', operator: 'equals', value }],
})
const pair = (name: string, one: object, other: object) => [
  { org, name, ...one },
  { org, name, ...other },
]
const url = (path: string) => `https://id.example.com/${path}`

/** Two states of an object or two of each section: in every field that can change one of them differs. */
const states: Record<(typeof sections)[number], object[][]> = {
  partners: [
    [
      { slug: 'acme', name: 'Acme', billingEmail: 'one@acme.example', settings: { timezone: 'UTC' } },
      {
        slug: 'acme',
        name: 'Acme IT',
        billingEmail: 'two@acme.example',
        settings: { timezone: 'Europe/Paris' },
      },
    ],
  ],
  organizations: [
    [
      {
        slug: 'florist',
        name: 'Florist',
        type: 'customer',
        maxDevices: 5,
        status: 'trial',
        contractStart: '2026-01-01',
        contractEnd: '2026-12-31',
        settings: { color: 'red' },
        billingContact: { name: 'Ada' },
        auditRetention: { retentionDays: 30 },
      },
      {
        slug: 'florist',
        name: 'Roses',
        type: 'internal',
        maxDevices: 9,
        status: 'active',
        contractStart: '2026-02-01',
        contractEnd: '2027-12-31',
        settings: { color: 'blue' },
        billingContact: { name: 'Grace' },
        auditRetention: { retentionDays: 60 },
      },
    ],
  ],
  sites: [
    pair(
      'Annex',
      { timezone: 'UTC', address: { city: 'Paris' }, contact: { name: 'Ada' }, settings: { a: 1 } },
      { timezone: 'Asia/Tokyo', address: { city: 'Tokyo' }, contact: null, settings: { a: 2 } },
    ),
  ],
  roles: [
    pair(
      'Pilot',
      { description: 'one', permissions: ['devices:read'], parent: 'Org Viewer', forceMfa: false },
      { description: 'two', permissions: ['sites:read'], parent: null, forceMfa: true },
    ),
  ],
  filters: [
    pair(
      'Up',
      { description: 'one', conditions: conditions('online') },
      { description: null, conditions: conditions('offline') },
    ),
    pair('Down', { conditions: conditions('offline') }, { conditions: conditions('offline') }),
  ],
  deviceGroups: [
    pair('Above', {}, {}),
    pair(
      'Live',
      { type: 'dynamic', filter: 'Up', parent: null },
      { type: 'dynamic', filter: 'Down', parent: 'Above' },
    ),
  ],
  scripts: [
    pair(
      'Clean',
      {
        description: 'one',
        category: 'one',
        osTypes: ['linux'],
        language: 'bash',
        content: 'true',
        parameters: { a: 1 },
        timeoutSeconds: 10,
        runAs: 'system',
      },
      {
        description: null,
        category: 'two',
        osTypes: ['macos'],
        language: 'python',
        content: 'pass',
        parameters: null,
        timeoutSeconds: 20,
        runAs: 'user',
      },
    ),
  ],
  memberships: [
    [
      {
        org,
        email: 'ada@example.com',
        name: 'Ada',
        role: 'Org Viewer',
        sites: ['Annex'],
        deviceGroups: null,
      },
      {
        org,
        email: 'ada@example.com',
        name: 'Ada',
        role: 'Org Technician',
        sites: null,
        deviceGroups: ['Above'],
      },
    ],
  ],
  webhooks: [
    pair(
      'Tickets',
      {
        url: 'https://hooks.example.com/one?key=1',
        secret: 'one',
        events: ['device.enrolled'],
        headers: [{ key: 'A', value: '1' }],
        status: 'active',
        retryPolicy: { maxRetries: 1 },
      },
      {
        url: 'https://hooks.example.com/one?key=2',
        secret: 'two',
        events: ['alert.triggered'],
        headers: [{ key: 'A', value: '2' }],
        status: 'paused',
        retryPolicy: { maxRetries: 2 },
      },
    ),
  ],
  trustPolicies: [
    pair(
      'Job',
      {
        issuer: 'https://one.example.com',
        audience: 'one',
        claims: { sub: 'one' },
        status: 'active',
        permissions: ['devices:read'],
        maxUsage: 1,
        maxTtlMinutes: 1,
      },
      {
        issuer: 'https://two.example.com',
        audience: 'two',
        claims: { sub: 'two' },
        status: 'inactive',
        permissions: ['sites:read'],
        maxUsage: 2,
        maxTtlMinutes: 2,
      },
    ),
  ],
  ssoProviders: [
    pair(
      'Oidc',
      {
        type: 'oidc',
        issuer: url(''),
        clientId: 'one',
        clientSecret: 'one',
        tokenAuth: 'client_secret_basic',
        authorizationUrl: url('a'),
        tokenUrl: url('b'),
        userInfoUrl: url('c'),
        jwksUrl: url('d'),
        scopes: 'openid email',
        attributeMapping: { email: 'email', name: 'name' },
        autoProvision: true,
        defaultRole: 'Org Viewer',
        allowedDomains: 'one.example.com',
        status: 'inactive',
      },
      {
        type: 'oidc',
        issuer: url('x'),
        clientId: 'two',
        clientSecret: 'two',
        tokenAuth: 'client_secret_post',
        authorizationUrl: url('e'),
        tokenUrl: url('f'),
        userInfoUrl: url('g'),
        jwksUrl: url('h'),
        scopes: 'openid profile',
        attributeMapping: { email: 'mail', name: 'name' },
        autoProvision: false,
        defaultRole: 'Org Technician',
        allowedDomains: 'two.example.com',
        status: 'testing',
      },
    ),
    pair(
      'Saml',
      {
        type: 'saml',
        entityId: url('a'),
        ssoUrl: url('b'),
        certificate,
        nameIdFormat: 'email',
        forceAuthn: false,
        signRequests: false,
      },
      {
        type: 'saml',
        entityId: url('c'),
        ssoUrl: url('d'),
        certificate: null,
        nameIdFormat: 'persistent',
        forceAuthn: true,
        signRequests: true,
      },
    ),
  ],
  // Of the world: files make none.
  apiKeys: [
    pair(
      'bakery api key',
      { scopes: ['devices:read'], rateLimit: 10 },
      { scopes: ['sites:read'], rateLimit: 20 },
    ),
  ],
  enrollmentKeys: [
    pair('bakery key', { maxUsage: 5, expiresAt: '2099-01-01' }, { maxUsage: 6, expiresAt: '2099-02-01' }),
  ],
}
/** What has a test of its own: names find objects; of partners; what decides everything else, or needs a sign-in before. */
const elsewhere = ['name', 'email', 'slug', 'orgAccess', 'orgs', 'preset', 'type', 'enforceSSO']

const documentOf = (at: 0 | 1): Document =>
  Object.fromEntries(sections.map((section) => [section, states[section].map((all) => ({ ...all[at] }))]))

aboveStorage((_, open) => {
  it('the last who set a field is who is named, whatever the field is', async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = configurationOf(service)
    const acme = by(world.tokens.acme)
    await acme.apply(documentOf(0), { adopt: true })
    const member = await addPartnerUser(service, 'one', world.partners.acme, 'all')
    await by(member).apply(documentOf(1))
    const document = documentOf(0)
    const { changes } = await acme.client.call(api.configuration.plan, { body: { document, culprits: true } })
    // What is of the partner is in the chain of the system, which its people do not read.
    const isReadable = (section: Section) => section !== 'partners'
    const readable = changes.filter(({ section }) => isReadable(section))
    const told = readable.flatMap(({ section, before, after, culprits }) =>
      Object.keys({ ...before, ...after }).map((field) => ({
        section,
        field,
        by: culprits!.filter((one) => one.field === field).map((one) => one.by),
      })),
    )
    expect(told.filter((one) => one.by.join() !== 'one@example.com')).toEqual([])
    for (const section of sections.filter(isReadable)) {
      const fields = kinds[section].fields.filter(
        ({ name, isChanged }) => isChanged && !elsewhere.includes(name),
      )
      const found = told.filter((one) => one.section === section).map(({ field }) => field)
      expect({ section, missing: fields.filter(({ name }) => !found.includes(name)) }).toEqual({
        section,
        missing: [],
      })
    }
  })

  it('and a field that was not set since keeps who set it before', async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = configurationOf(service)
    const acme = by(world.tokens.acme)
    const ada = { org, email: 'ada@example.com', name: 'Ada', role: 'Org Viewer' }
    const files = (sites: string[] | null, deviceGroups: string[] | null) => ({
      memberships: [{ ...ada, sites, deviceGroups }],
    })
    await acme.apply(files(null, null))
    const members = await Promise.all(
      ['one', 'two'].map((name) => addPartnerUser(service, name, world.partners.acme, 'all')),
    )
    await by(members[0]!).apply(files(['bakery site'], null))
    await by(members[1]!).apply(files(['bakery site'], ['bakery group']))
    const body = { document: files(null, null), culprits: true }
    const [change] = (await acme.client.call(api.configuration.plan, { body })).changes
    expect(Object.fromEntries(change!.culprits!.map(({ field, by: who }) => [field, who]))).toEqual({
      sites: 'one@example.com',
      deviceGroups: 'two@example.com',
    })
  })
})
