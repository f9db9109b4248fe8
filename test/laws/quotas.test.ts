import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { defaultQuotas, type QuotaName } from '../../src/core/quotas.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import type { TableName } from '../../src/storage/schema/tables.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { metricsToken, scrapedValues } from '../metric-values.ts'
import { buildWorld, roleOf, type World } from '../world.ts'
import { type Input, toWire } from './calls.ts'
import { expectTests, type NamedTest } from './named-bounds.ts'
import { type Scenario, type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { Line } from './wire.ts'

/** Endpoints whose scenario cannot be repeated, and the tests of their quota. */
const elsewhere: Record<string, NamedTest> = {
  'auth.verifyEmail': [
    'test/identity/registration.test.ts',
    'is refused where the service has as many as its quota allows',
  ],
  'ssoSignIn.callback': [
    'test/sso/sign-in/sign-in.test.ts',
    'creates no account for an organization that is full',
  ],
  'ssoSignIn.acs': [
    'test/sso/sign-in/saml-flow.test.ts',
    'creates no account for an organization that is full',
  ],
}

const tables: Record<QuotaName, TableName> = {
  PARTNERS: 'partners',
  PENDING_PARTNERS: 'partners',
  ORGANIZATIONS: 'organizations',
  SITES: 'sites',
  MEMBERS: 'organization_memberships',
  ROLES: 'roles',
  API_KEYS: 'api_keys',
  ENROLLMENT_KEYS: 'enrollment_keys',
  DEVICES: 'devices',
  FILTERS: 'saved_filters',
  DEVICE_GROUPS: 'device_groups',
  SCRIPTS: 'scripts',
  ALERTS: 'alerts',
  WEBHOOKS: 'webhooks',
  SSO_PROVIDERS: 'sso_providers',
  TRUST_POLICIES: 'trust_policies',
}

/** Scenarios create partners and organizations of their own: these two are used up last. */
const quotas: Record<QuotaName, number> = {
  ...(Object.fromEntries(Object.keys(defaultQuotas).map((name) => [name, 5])) as Record<QuotaName, number>),
  ORGANIZATIONS: 60,
  PARTNERS: 20,
  PENDING_PARTNERS: 3,
}
const env = Object.fromEntries(Object.entries(quotas).map(([name, most]) => [`QUOTA_${name}`, String(most)]))

type Quoted = { name: string; entry: Endpoint & { quota: QuotaName } }
const isLast = ({ entry }: Quoted): boolean => /^ORGANIZATIONS$|PARTNERS$/.test(entry.quota)
const all = entriesOf(api).filter(({ entry }) => entry.quota !== undefined) as Quoted[]
const repeatable = all.filter(({ name }) => !(name in elsewhere))
const [others, last] = [repeatable.filter((one) => !isLast(one)), repeatable.filter(isLast)]

describe('an endpoint that creates records', () => {
  it('has a quota, which a test reaches', () => {
    const creating = entriesOf(api).filter(({ name, entry }) => entry.status === 201 && !(name in unlimited))
    expect(creating.filter(({ entry }) => entry.quota === undefined).map(({ name }) => name)).toEqual([])
    expect(new Set(all.map(({ entry }) => entry.quota))).toEqual(new Set(Object.keys(defaultQuotas)))
    expectTests(Object.values(elsewhere))
  })
})

/** What is created there has a bound of another kind. */
const unlimited: Record<string, string> = {
  'agentRollouts.start': 'one at a time, of the system administrators',
  'deviceCommands.create': '100 open and 1000 finished ones of a device',
  'deviceCommands.setAutoUpdate': 'the same',
  'diagnosticLogs.submit': 'LOG_BYTES_PER_DEVICE, LOG_BYTES_PER_ORG',
  'ssoTrials.begin': 'ten minutes',
}

onEveryDatabase((_, open) => {
  let service: TestService
  let world: World
  let hand: ScenarioTools
  let line: Line
  beforeAll(async () => {
    service = await startService(open, { env: { ...env, METRICS_TOKEN: metricsToken } })
    world = await buildWorld(service)
    hand = scenarioTools(service, world, systemClock)
    line = new Line(service.url)
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  const countOf = async (quota: QuotaName) => {
    const query = service.storage.read
      .selectFrom(tables[quota])
      .select(({ fn }) => fn.countAll<number>().as('count'))
    return Number((await query.executeTakeFirstOrThrow()).count)
  }
  const refusals = () => scrapedValues(service.url, 'svc_quota_refusals_total')
  let serial = 0
  /** The call with another name for what it creates. */
  const again = ({ entry }: Quoted, { input, token }: Scenario) => {
    serial += 1
    const body = { ...(input.body as Record<string, unknown>) }
    if ('slug' in body) body.slug = `slug-${serial}`
    if ('email' in body) body.email = `person-${serial}@example.com`
    return line.send(toWire(entry, { ...input, body } as Input, token))
  }
  /** Repeats the call until it is refused; returns the refusal. */
  const exhaust = async (one: Quoted, scenario: Scenario) => {
    for (let n = 0; n <= quotas[one.entry.quota]; n++) {
      const reply = await again(one, scenario)
      if (reply.status !== (one.entry.status ?? 200)) return reply
    }
    throw new Error(`${one.name} was never refused`)
  }

  const isRefused = async (one: Quoted) => {
    const { quota } = one.entry
    const scenario = await scenarioOf(one.name, one.entry, hand)
    const another = isLast(one) ? undefined : await scenarioOf(one.name, one.entry, hand)
    const refusal = await exhaust(one, scenario)
    expect([refusal.status, JSON.parse(refusal.text)]).toMatchObject([
      403,
      one.name === 'auth.registerPartner'
        ? { code: 'quota_exceeded' }
        : { code: 'quota_exceeded', details: { quota, most: quotas[quota] } },
    ])
    const before = { count: await countOf(quota), refusals: await refusals() }
    expect((await again(one, scenario)).status).toBe(403)
    expect(await countOf(quota)).toBe(before.count)
    expect((await refusals())[quota]).toBe(before.refusals[quota]! + 1)
    // Another tenant has a quota of its own.
    if (another) expect((await again(one, another)).status).toBe(one.entry.status ?? 200)
  }

  it.each(others)('$name is refused when its tenant has as many as the quota allows', isRefused)

  const made = (name: string) => all.find((one) => one.name === name)!
  const ended: [name: string, end: (id: string) => Promise<unknown>][] = [
    ['apiKeys.create', (id) => system().call(api.apiKeys.revoke, { params: { id } })],
    ['scripts.create', (id) => system().call(api.scripts.remove, { params: { id } })],
    ['alerts.create', (id) => system().call(api.alerts.resolve, { params: { id }, body: {} })],
    ['enrollmentKeys.create', (id) => expire('enrollment_keys', id)],
  ]
  const system = () => service.client(world.tokens.system)
  const expire = (table: 'enrollment_keys', id: string) =>
    service.storage.write((tx) =>
      tx
        .updateTable(table)
        .set({ expires_at: addSeconds(systemClock(), -91 * 86_400) })
        .where('id', '=', id)
        .execute(),
    )

  it.each(ended)('%s makes room by deleting the oldest that has ended', async (name, end) => {
    const one = made(name)
    const scenario = await scenarioOf(name, one.entry, hand)
    const first = JSON.parse((await again(one, scenario)).text) as { id: string }
    await end(first.id)
    await exhaust(one, scenario)
    const rows = service.storage.read.selectFrom(tables[one.entry.quota] as 'api_keys').select('id')
    const own = await rows.where('org_id', '=', String(scenario.orgId)).execute()
    expect(own).toHaveLength(5)
    expect(own.map(({ id }) => id)).not.toContain(first.id)
    await sealPending(service.storage)
    const entries = service.storage.read
      .selectFrom('audit_logs')
      .select('canonical')
      .where('chain', '=', String(scenario.orgId))
    const displaced = (await entries.execute()).flatMap(
      ({ canonical }) => JSON.parse(canonical).details.displaced ?? [],
    )
    expect(displaced).toEqual([first.id])
  })

  it('users.invite is refused for a partner that has as many members as the quota allows', async () => {
    const body = (n: number) => ({
      email: `of-partner-${n}@example.com`,
      name: 'Partner',
      partnerId: world.partners.globex,
      roleId: roleOf('Partner Viewer', 'partner'),
    })
    const invited: unknown[] = []
    for (let n = 0; n < 6; n++) {
      invited.push(
        await system()
          .call(api.users.invite, { body: body(n) })
          .catch(({ code }) => code),
      )
    }
    expect(invited.at(-1)).toBe('quota_exceeded')
    const members = service.storage.read
      .selectFrom('partner_memberships')
      .select('id')
      .where('partner_id', '=', world.partners.globex)
    expect(await members.execute()).toHaveLength(5)
  })

  // Scenarios create partners and organizations of their own.
  it.each(last)('$name is refused when its tenant has as many as the quota allows', isRefused)
})
