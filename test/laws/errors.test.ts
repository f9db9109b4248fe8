import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import { OutboundFailure } from '../../src/core/outbound.ts'
import { createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import { addPerson, enrolFactor, password, signIn as passwordSignIn } from '../daemon/people.ts'
import { until } from '../daemon/process.ts'
import { send } from '../daemon/request.ts'
import { onEveryDatabase } from '../databases.ts'
import { noLimits, type TestService, testSecrets } from '../harness.ts'
import { received } from '../identity/mailbox.ts'
import { addMember, browser, codeIn, errorIn, person, start } from '../sso/sign-in/sign-in-fixture.ts'
import { addOrg, addOrgUser, addPartnerUser, addRole, addWebhook, roleOf } from '../world.ts'
import { unknownRecords } from './calls.ts'
import { userIdOf } from './fixture.ts'
import { scenarioOf, scenarioTools } from './scenarios.ts'

/*
 * The documented errors, row by row, with their messages. If only the condition is documented, the message is
 * the one callers rely on; if no status is documented, the status is.
 */

type Parts = NonNullable<Parameters<typeof send>[3]>
type Said = {
  status: number
  error?: string
  headers: Record<string, string | undefined>
  body: Record<string, unknown>
}
type Stage = Awaited<ReturnType<typeof setUp>>
type Row = {
  status: number
  /** The documented message; undefined if only the condition is documented. */
  error?: string
  when: string
  /** All ways to provoke the error. */
  ask(stage: Stage): Promise<Said[]>
  /** Further fields of the response. */
  more?: Record<string, unknown>
  headers?: readonly string[]
}

const phoneNumber = '+4915112345678'
const retryLater = { retryAfter: expect.any(Number) }

async function setUp(open: Parameters<typeof start>[0]) {
  const begun = await start(open)
  const { outbound } = begun.idp
  const usual = outbound.send
  Object.assign(outbound, {
    send: async (request: Parameters<typeof usual>[0]) => {
      if (request.url.startsWith('https://turned.')) throw new OutboundFailure('blocked', 'turned (10.0.0.1)')
      return usual(request)
    },
    locateHost: async ({ hostname }: URL) => {
      if (hostname.startsWith('10.')) return { network: 'private' }
      if (hostname.startsWith('inner')) return { network: 'private by name', addresses: ['10.0.0.1'] }
      return { network: hostname.startsWith('missing') ? 'unresolved' : 'public' }
    },
  })
  const { service, world, clock } = begun
  const call = async (
    method: Parameters<typeof send>[1],
    path: string,
    parts: Parts = {},
    at: TestService = service,
  ) => {
    const { status, headers, body } = await send<Record<string, unknown>>(
      at.url,
      method,
      `/api/v1${path}`,
      parts,
    )
    return { status, headers, body, error: body.error as string } satisfies Said
  }
  const bakery = service.client(world.tokens.bakery)
  const key = (body: object = {}) =>
    bakery.call(api.apiKeys.create, { body: { name: 'k', scopes: ['devices:read'], ...body } })
  const using = (presented: string) => call('GET', '/devices', { headers: { 'x-api-key': presented } })
  const revoked = async () => {
    const made = await key()
    await bakery.call(api.apiKeys.revoke, { params: { id: made.id } })
    return made
  }
  const expired = async () => {
    const made = await key({ expiresAt: new Date(Date.parse(clock()) + 1000).toISOString() })
    clock.forward(1)
    return made
  }
  const by = (
    name: keyof typeof world.tokens,
    method: Parameters<typeof send>[1],
    path: string,
    body?: unknown,
  ) => call(method, path, { token: world.tokens[name], ...(body !== undefined && { body }) })
  /** Another process on the same database, with rate limits on. */
  const limited = (more: Record<string, string>) => begun.replica({ ...noLimits, ...more })
  return { ...begun, call, by, key, using, revoked, expired, limited }
}

/** A user with a password, in their own organization with the given settings. */
async function living({ service, world, system, clock }: Stage, settings: Record<string, unknown> = {}) {
  const name = `living-${newId()}`
  const { id: orgId } = await addOrg(service, world.tokens.system, world.partners.acme, name)
  await system.call(api.orgs.update, { params: { id: orgId }, body: { settings } })
  const email = await addPerson(service, name, { orgId }, 'Org Viewer')
  const { accessToken } = await passwordSignIn(service, { email, password })
  return { email, orgId, token: accessToken, factor: () => enrolFactor(service.client(accessToken), clock) }
}

const rows: readonly Row[] = [
  {
    status: 401,
    error: 'Missing X-API-Key header',
    when: 'the header is absent',
    ask: async ({ call }) => [await call('GET', '/devices')],
  },
  {
    status: 401,
    error: 'Invalid API key format',
    when: 'the key lacks the prefix',
    ask: async ({ using }) => [await using('key_1'), await using('SVC_1')],
  },
  {
    status: 401,
    error: 'Invalid API key',
    when: 'the hash matches no record',
    ask: async ({ using }) => [await using(`svc_${'x'.repeat(32)}`)],
  },
  {
    status: 401,
    error: 'API key is revoked',
    when: 'the key is revoked',
    ask: async ({ using, revoked }) => [await using((await revoked()).key)],
  },
  {
    status: 401,
    error: 'API key is expired',
    when: 'the key is expired',
    ask: async ({ using, expired }) => [await using((await expired()).key)],
  },
  {
    status: 429,
    error: 'Rate limit exceeded',
    when: 'the hourly limit of a key is reached',
    headers: ['retry-after'],
    async ask({ key, using }) {
      const made = await key({ rateLimit: 1 })
      await using(made.key)
      return [await using(made.key)]
    },
  },
  {
    status: 429,
    when: 'a limit of sign-in, MFA or registration is reached',
    headers: ['retry-after'],
    more: retryLater,
    async ask(on) {
      const env = { RATE_LIMIT_LOGIN_IP: '1/300', RATE_LIMIT_MFA: '1/300', ENABLE_REGISTRATION: 'true' }
      const at = await on.limited({
        ...env,
        RATE_LIMIT_REGISTER: '1/300',
        RATE_LIMIT_REGISTER_PARTNER: '1/300',
      })
      const { token } = await living(on)
      const registration = { password, name: 'A' }
      const twice = async (path: string, body: object, who?: string) => {
        const parts = {
          body,
          ...(who !== undefined && { token: who }),
          headers: { 'x-service-client': 'cli' },
        }
        await on.call('POST', path, parts, at)
        return on.call('POST', path, parts, at)
      }
      return [
        await twice('/auth/login', { email: 'a@example.com', password: 'b' }),
        await twice('/auth/mfa/enable', { code: '000000' }, token),
        await twice('/auth/register', { ...registration, email: 'a@example.com' }),
        await twice('/auth/register-partner', { ...registration, email: 'b@example.com', companyName: 'B' }),
      ]
    },
  },
  {
    status: 403,
    error: 'API key does not have required permissions',
    when: 'its scopes lack what is required',
    ask: async ({ key, using }) => [
      await using((await key({ scopes: [] })).key),
      await using((await key({ scopes: ['alerts:read'] })).key),
    ],
  },
  {
    status: 400,
    error: 'Cannot update revoked API key',
    when: 'a key that is not active is changed',
    async ask({ by, revoked, expired }) {
      const answers: Said[] = []
      for (const made of [await revoked(), await expired()]) {
        answers.push(await by('bakery', 'PATCH', `/api-keys/${made.id}`, { name: 'x' }))
        answers.push(await by('bakery', 'POST', `/api-keys/${made.id}/rotate`))
      }
      return answers
    },
  },
  {
    status: 400,
    error: 'orgId is required for partner scope',
    when: 'a partner makes a filter without orgId',
    ask: async ({ by }) => [await by('acme', 'POST', '/filters', api.filters.create.example)],
  },
  {
    status: 400,
    when: 'a PATCH says nothing, or nothing that is known',
    more: { code: 'invalid_request' },
    async ask({ service, world, clock, call }) {
      const hand = scenarioTools(service, world, clock)
      const answers: Said[] = []
      for (const { name, entry } of entriesOf(api).filter((one) => one.entry.method === 'PATCH')) {
        const { input, token } = await scenarioOf(name, entry, hand)
        const path = entry.path.replace(/:(\w+)/g, (_, one: string) => String(input.params[one]))
        const query = new URLSearchParams(input.query as Record<string, string>).toString()
        for (const body of [undefined, {}, { nobodyKnows: 1 }]) {
          answers.push(await call('PATCH', `${path}?${query}`, { token, body }))
        }
      }
      expect(answers.length).toBeGreaterThan(20)
      return answers
    },
  },
  {
    status: 400,
    error: 'partnerId is required for system scope',
    when: 'no partner is named in system scope',
    ask: async ({ by }) => [await by('system', 'POST', '/orgs/organizations', { name: 'A', slug: 'a' })],
  },
  {
    status: 403,
    when: 'a partner names another partner',
    more: { code: 'partner_mismatch', error: 'Access to this partner denied' },
    ask: async ({ by, world: { partners } }) => [
      await by('acme', 'POST', '/orgs/organizations', { name: 'A', slug: 'a', partnerId: partners.globex }),
    ],
  },
  {
    status: 404,
    when: 'a partner or organization is absent, deleted, or beyond the reach of a partner',
    more: { code: 'not_found', error: expect.stringMatching(/^(Partner|Organization) not found$/) },
    async ask({ by, service, system, world: { orgs, partners, tokens } }) {
      const none = unknownRecords()
      const gone = await addOrg(service, tokens.system, partners.acme, 'gone')
      await system.call(api.orgs.remove, { params: { id: gone.id } })
      const partner = await system.call(api.partners.create, { body: { name: 'Gone', slug: 'gone' } })
      await system.call(api.partners.remove, { params: { id: partner.id } })
      const answers: Said[] = []
      for (const [method, body] of [['GET'], ['PATCH', { name: 'x' }], ['DELETE']] as const) {
        for (const id of [none.partner, partner.id]) {
          answers.push(await by('system', method, `/orgs/partners/${id}`, body))
        }
        for (const id of [none.organization, gone.id]) {
          answers.push(await by('system', method, `/orgs/organizations/${id}`, body))
        }
        answers.push(await by('acme', method, `/orgs/organizations/${orgs.harbor.id}`, body))
        answers.push(await by('acmeBakery', method, `/orgs/organizations/${orgs.garage.id}`, body))
      }
      return answers
    },
  },
  {
    status: 403,
    error: 'Access to this organization denied',
    when: 'a site is made or looked for elsewhere',
    ask: async ({ by, world: { orgs } }) => [
      await by('acme', 'POST', '/orgs/sites', { orgId: orgs.harbor.id, name: 'A' }),
      await by('acmeBakery', 'POST', '/orgs/sites', { orgId: orgs.garage.id, name: 'A' }),
      await by('bakery', 'POST', '/orgs/sites', { orgId: orgs.garage.id, name: 'A' }),
      await by('acme', 'GET', `/orgs/sites?organizationId=${orgs.harbor.id}`),
    ],
  },
  {
    status: 403,
    error: 'Access to this site denied',
    when: 'a site of an organization out of reach',
    async ask({ by, world: { orgs } }) {
      const answers: Said[] = []
      for (const [method, body] of [['GET'], ['PATCH', { name: 'x' }], ['DELETE']] as const) {
        answers.push(await by('acme', method, `/orgs/sites/${orgs.harbor.siteId}`, body))
        answers.push(await by('bakery', method, `/orgs/sites/${orgs.garage.siteId}`, body))
      }
      return answers
    },
  },
  {
    status: 404,
    error: 'No active SSO provider for this organization',
    when: 'there is no active provider',
    async ask({ call, world: { orgs }, system }) {
      // A configured but inactive provider.
      const { data } = await system.call(api.ssoProviders.list, {
        query: { orgId: orgs.garage.id },
      })
      expect(data.map(({ status }) => status)).toEqual(['inactive'])
      return [await call('GET', `/sso/login/${orgs.garage.id}`)]
    },
  },
  {
    status: 400,
    error: 'Invalid or expired token exchange code',
    when: 'a code is used, old or corrupted',
    async ask(on) {
      const { call, clock, bakery, service, signIn } = on
      await withProvider(on)
      await addMember(service, bakery.id, person.email)
      const exchange = (code: string) =>
        call('POST', '/sso/exchange', { body: { code }, headers: { 'x-service-client': 'cli' } })
      const used = codeIn((await signIn()).location)
      expect(await exchange(used)).toMatchObject({ status: 200 })
      const old = codeIn((await signIn()).location)
      clock.forward(121)
      return [
        await exchange(used),
        await exchange(old),
        await exchange('x'.repeat(43)),
        await exchange('nonsense'),
      ]
    },
  },
  {
    status: 302,
    when: 'a callback fails in a way nobody thought of',
    async ask(on) {
      const { idp, service, bakery } = on
      await withProvider(on)
      const by = browser()
      const begun = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}`)
      const back = new URL(await idp.authorize(begun.location, person))
      const { send: usual } = idp.outbound
      idp.outbound.send = () => Promise.reject(new TypeError('a bug'))
      const ended = await by.open(`${service.url}/api/v1/sso/callback${back.search}`)
      idp.outbound.send = usual
      return [{ status: ended.status, error: ended.location, headers: {}, body: {} }]
    },
    error: '/login?error=sso_error',
  },
  ...(
    [
      [
        'session_expired',
        'the state is older than ten minutes',
        {},
        ({ clock }: Stage) => clock.forward(601),
      ],
      [
        'provider_not_found',
        'the provider is switched off',
        {},
        (on: Stage, id: string) => on.setStatus(id, 'inactive'),
      ],
      [
        'provider_not_found',
        'the provider is deleted',
        {},
        (on: Stage, id: string) => on.client.call(api.ssoProviders.remove, { params: { id } }),
      ],
      [
        'domain_not_allowed',
        'the domain of the address is not allowed',
        { allowedDomains: 'elsewhere.example' },
      ],
      ['user_not_found', 'there is no user, and none is made', {}],
      ['default_role_required', 'one is made, and has no role', { autoProvision: true }],
      ['no_org_access', 'the user belongs elsewhere', {}, undefined, 'admin@example.com'],
    ] as const
  ).map(
    ([code, when, settings, meanwhile, email]): Row => ({
      status: 302,
      error: code,
      when,
      async ask(on) {
        const { idp, service, bakery } = on
        const id = await withProvider(on, settings)
        const by = browser()
        const begun = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}`)
        const who = { ...person, sub: newId(), email: email ?? `${newId()}@bakery.example.com` }
        const back = new URL(await idp.authorize(begun.location, who))
        await meanwhile?.(on, id)
        const ended = await by.open(`${service.url}/api/v1/sso/callback${back.search}`)
        const error = errorIn(ended.location) ?? ''
        return [{ status: ended.status, error, headers: {}, body: {} }]
      },
    }),
  ),
  {
    status: 428,
    when: 'a role demands a factor and there is none',
    more: { code: 'mfa_enrollment_required' },
    async ask({ service, call, world: { partners } }) {
      const token = await addPartnerUser(service, 'factorless', partners.acme, 'all')
      const id = await userIdOf(service, 'factorless')
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ mfa_method: null }).where('id', '=', id).execute(),
      )
      return [await call('GET', '/devices', { token })]
    },
  },
  {
    status: 403,
    when: 'MFA is disabled where the organization demands it',
    more: { code: 'mfa_enforced' },
    async ask(on) {
      const { factor } = await living(on, { security: { requireMfa: true } })
      const { tokens, recoveryCodes } = await factor()
      const [code] = recoveryCodes
      return [await on.call('POST', '/auth/mfa/disable', { token: tokens.accessToken, body: { code } })]
    },
  },
  {
    status: 403,
    error: 'Your organization does not allow SMS MFA',
    when: 'settings do not allow it',
    async ask(on) {
      const { token } = await living(on, { security: { allowedMfaMethods: { sms: false } } })
      await on.call('POST', '/auth/phone/verify', { token, body: { phoneNumber } })
      const { text } = await received(on.service, phoneNumber, 'sms-code')
      const code = /\d{6}/.exec(text)?.[0]
      await on.call('POST', '/auth/phone/confirm', { token, body: { phoneNumber, code } })
      return [await on.call('POST', '/auth/mfa/sms/enable', { token })]
    },
  },
  {
    status: 409,
    error: 'User already exists in this scope',
    when: 'an address is invited that belongs to it',
    ask: async ({ by }) => {
      const body = {
        email: 'bakery-viewer@example.com',
        name: 'A',
        roleId: roleOf('Org Viewer', 'organization'),
      }
      return [await by('bakery', 'POST', '/users/invite', body)]
    },
  },
  {
    status: 403,
    error: 'Partner or organization context required',
    when: 'the caller is of neither',
    ask: async ({ by }) => [
      await by('system', 'POST', '/roles', { name: 'A', permissions: [] }),
      await by('system', 'POST', '/users/invite', { email: 'a@example.com', name: 'A', roleId: newId() }),
    ],
  },
  {
    status: 403,
    error: 'Full partner organization access required',
    when: 'a partner user sees a part',
    ask: async ({ by, service, world: { partners } }) => {
      await addPartnerUser(service, 'acme-colleague', partners.acme, 'all')
      const id = await userIdOf(service, 'acme-colleague')
      const roleId = roleOf('Partner Viewer', 'partner')
      return [
        await by('acmeBakery', 'GET', '/users'),
        await by('acmeBakery', 'POST', '/users/invite', { email: 'a@example.com', name: 'A', roleId }),
        await by('acmeBakery', 'PATCH', `/users/${id}`, { status: 'disabled' }),
        await by('acmeBakery', 'POST', `/users/${id}/role`, { roleId }),
        await by('acmeBakery', 'DELETE', `/users/${id}`),
      ]
    },
  },
  {
    status: 403,
    error: 'Cannot modify system roles',
    when: 'a built-in role is changed',
    ask: ({ by }) =>
      ofBuiltIn((id) => [by('system', 'PATCH', id, { name: 'x' }), by('bakery', 'PATCH', id, { name: 'x' })]),
  },
  {
    status: 403,
    error: 'Cannot delete system roles',
    when: 'a built-in role is deleted',
    ask: ({ by }) => ofBuiltIn((id) => [by('system', 'DELETE', id), by('bakery', 'DELETE', id)]),
  },
  {
    status: 400,
    error: 'Cannot delete role with assigned users',
    when: 'a role has users',
    more: { details: { userCount: 1, childRoleCount: 0, providerCount: 0 } },
    async ask({ by, service, bakery }) {
      const id = await addRole(service, bakery.id, 'held', ['devices:read'])
      await addOrgUser(service, 'holder', bakery.id, { role: id })
      return [await by('bakery', 'DELETE', `/roles/${id}`)]
    },
  },
  {
    status: 400,
    error: 'Cannot delete role that is in use: 2 roles inherit from it',
    when: 'a role has child roles',
    more: { details: { userCount: 0, childRoleCount: 2, providerCount: 0 } },
    async ask({ by, service, bakery }) {
      const parentRoleId = await addRole(service, bakery.id, 'above', ['devices:read'])
      for (const name of ['a', 'b'])
        await by('bakery', 'POST', '/roles', { name, permissions: [], parentRoleId })
      return [await by('bakery', 'DELETE', `/roles/${parentRoleId}`)]
    },
  },
  {
    status: 400,
    error: 'Cannot set parent role: would create circular inheritance',
    when: 'the parent is below',
    async ask({ by, service, bakery }) {
      const id = await addRole(service, bakery.id, 'top', ['devices:read'])
      const { body } = await by('bakery', 'POST', '/roles', {
        name: 'low',
        permissions: [],
        parentRoleId: id,
      })
      const under = (parentRoleId: unknown) => by('bakery', 'PATCH', `/roles/${id}`, { parentRoleId })
      return [await under(body.id), await under(id)]
    },
  },
  {
    status: 400,
    error: 'Invalid webhook URL',
    when: 'it is not HTTPS, blocked, or has no address',
    async ask({ by, service, bakery }) {
      const { id } = await addWebhook(service, bakery.id, 'elsewhere')
      const urls = [
        'http://hooks.example.com',
        'https://localhost',
        'https://nas.local',
        'https://10.0.0.1',
        'https://inner.example.com',
        'https://missing.example.com',
        'no address',
      ]
      const answers: Said[] = []
      for (const url of urls) {
        answers.push(await by('bakery', 'POST', '/webhooks', { name: 'a', url, events: ['device.online'] }))
        answers.push(await by('bakery', 'PATCH', `/webhooks/${id}`, { url }))
      }
      return answers
    },
  },
  {
    status: 202,
    error: 'Unsafe webhook URL',
    when: 'it leads inside when it is delivered',
    async ask({ by, service, bakery }) {
      const { id } = await addWebhook(service, bakery.id, 'turned')
      await by('bakery', 'PATCH', `/webhooks/${id}`, { url: 'https://turned.example.com/' })
      const { status } = await by('bakery', 'POST', `/webhooks/${id}/test`)
      let errorMessage = ''
      await until(async () => {
        const { body } = await by('bakery', 'GET', `/webhooks/${id}/deliveries`)
        const [one] = body.data as { status: string; errorMessage: string | null }[]
        errorMessage = one?.errorMessage ?? ''
        return one?.status === 'failed'
      }, 10_000)
      return [{ status, error: errorMessage.split(':')[0] ?? '', headers: {}, body: {} }]
    },
  },
  {
    status: 400,
    error: 'Only failed deliveries can be retried',
    when: 'a delivery has not failed',
    async ask({ by, service, bakery }) {
      const { id } = await addWebhook(service, bakery.id, 'slow')
      const { body } = await by('bakery', 'POST', `/webhooks/${id}/test`)
      const { id: deliveryId } = body.delivery as { id: string }
      return [await by('bakery', 'POST', `/webhooks/${id}/retry/${deliveryId}`)]
    },
  },
  {
    status: 404,
    when: 'an audit entry is absent, or of another organization',
    more: { code: 'not_found' },
    async ask({ by }) {
      const { body } = await by('harbor', 'GET', '/audit-logs/logs?limit=1')
      const [{ id }] = body.data as [{ id: string }]
      expect(await by('harbor', 'GET', `/audit-logs/logs/${id}`)).toMatchObject({ status: 200 })
      return [
        await by('bakery', 'GET', `/audit-logs/logs/${newId()}`),
        await by('bakery', 'GET', `/audit-logs/logs/${id}`),
      ]
    },
  },
  {
    status: 404,
    when: 'logs are handed in under an id that no device has',
    more: { code: 'not_found' },
    async ask({ call, bakery: { agentToken: token } }) {
      const { agent } = unknownRecords()
      return [
        await call('POST', `/agents/${agent}/logs`, { token, body: { logs: [] } }),
        await call('PUT', `/agents/${agent}/eventlogs`, { token, body: { events: [] } }),
      ]
    },
  },
]

const ofBuiltIn = (ways: (path: string) => Promise<Said>[]): Promise<Said[]> =>
  Promise.all(ways(`/roles/${roleOf('Org Viewer', 'organization')}`))

/**
 * Errors that cannot occur: a session always names its organization or partner. A signed token that
 * does not is refused like any invalid token.
 */
const impossible: readonly [message: string, context: object][] = [
  ['Organization context required', { kind: 'organization' }],
  ['Partner context required to create organizations', { kind: 'partner' }],
]

/** A new provider of the bakery, without other active ones. */
async function withProvider(on: Stage, settings: Parameters<Stage['provider']>[0] = {}): Promise<string> {
  const { data } = await on.client.call(api.ssoProviders.list)
  for (const { id, status } of data) if (status === 'active') await on.setStatus(id, 'inactive')
  return (await on.provider(settings)).id
}

onEveryDatabase((_, open) => {
  let on: Stage
  beforeAll(async () => {
    on = await setUp(open)
  })
  afterAll(() => on.service.close())

  describe('the documented errors', () => {
    it.each(rows)('$status when $when', async ({ status, error, ask, more = {}, headers = [] }) => {
      for (const answer of await ask(on)) {
        const wanted = { status, ...(error !== undefined && { error }) }
        expect({
          status: answer.status,
          ...(error !== undefined && { error: answer.error }),
          said: answer.body,
        }).toMatchObject({ ...wanted, said: more })
        for (const name of headers) expect(answer.headers[name]).toMatch(/^\d+$/)
      }
    })

    it.each(impossible)('%s: cannot occur', async (_, context) => {
      const { world, clock } = on
      const tokens = createAccessTokens(testSecrets.JWT_SECRET)
      const claims = (await tokens.verify(world.tokens.bakery, new Date(clock())))!
      const token = await tokens.sign({ ...claims, context: context as never }, new Date(clock()))
      const body = { name: 'A', slug: 'a' }
      for (const [method, path, parts] of [
        ['GET', '/devices', {}],
        ['POST', '/orgs/organizations', { body }],
      ] as const) {
        expect(await on.call(method, path, { token, ...parts })).toMatchObject({
          status: 401,
          body: { code: 'invalid_token' },
        })
      }
    })
  })
})
