import { expect } from 'vitest'
import { api } from '../../src/api.ts'
import type { BodyOf } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import { type Outbound, OutboundFailure, type OutboundReply } from '../../src/core/outbound.ts'
import { addSeconds, type Instant } from '../../src/core/time.ts'
import type { Open } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { buildWorld } from '../world.ts'

export const issuer = 'https://idp.example.com'

export const documentOf = (of: string) => ({
  issuer: of,
  authorization_endpoint: `${of}/authorize`,
  token_endpoint: `${of}/token`,
  userinfo_endpoint: `${of}/userinfo`,
  jwks_uri: `${of}/keys`,
})

export const endpointsOf = (of: string) => ({
  authorizationUrl: `${of}/authorize`,
  tokenUrl: `${of}/token`,
  userInfoUrl: `${of}/userinfo`,
  jwksUrl: `${of}/keys`,
})

export const noEndpoints = { authorizationUrl: null, tokenUrl: null, userInfoUrl: null, jwksUrl: null }

/** A fake network of issuers; hosts named inner… resolve internally, hosts named missing… do not resolve. */
function issuers(published: Record<string, unknown> = { [issuer]: documentOf(issuer) }) {
  const asked: string[] = []
  const outbound: Outbound = {
    async send({ url }): Promise<OutboundReply> {
      asked.push(url)
      const found = published[url.replace(/\/\.well-known\/openid-configuration$/, '')]
      if (found === undefined) throw new OutboundFailure('refused', `connect ECONNREFUSED ${url}`)
      const body = Buffer.from(JSON.stringify(found))
      return { status: 200, headers: {}, body, isWhole: true, milliseconds: 1 }
    },
    locateHost: async ({ hostname }) =>
      hostname.startsWith('inner')
        ? { network: 'private by name', addresses: ['10.0.0.1'] }
        : { network: hostname.startsWith('missing') ? 'unresolved' : 'public' },
    close: async () => {},
  }
  return { outbound, asked, published }
}

export const oidc = { name: 'Okta', type: 'oidc', issuer, clientId: 'svc', clientSecret: 'hush' } as const

/** A service with the world, in which the administrator of the bakery creates providers. */
export async function start(open: Open) {
  const clock = testClock()
  const outside = issuers()
  const service = await startService(open, { clock, outside: { outbound: outside.outbound } })
  const world = await buildWorld(service)
  const { bakery, garage } = world.orgs
  const client = service.client(world.tokens.bakery)
  type Body = Partial<BodyOf<typeof api.ssoProviders.create>>
  const create = async (more: Body = {}) =>
    (await client.call(api.ssoProviders.create, { body: { ...oidc, ...more } as never })).data
  const change = async (id: string, body: BodyOf<typeof api.ssoProviders.update>) =>
    (await client.call(api.ssoProviders.update, { params: { id }, body })).data
  const setStatus = async (id: string, status: 'active' | 'inactive' | 'testing') =>
    (await client.call(api.ssoProviders.setStatus, { params: { id }, body: { status } })).data
  const show = async (id: string) => (await client.call(api.ssoProviders.show, { params: { id } })).data
  const system = service.client(world.tokens.system)
  return {
    clock,
    service,
    world,
    bakery,
    garage,
    client,
    system,
    create,
    change,
    setStatus,
    show,
    ...outside,
  }
}

/** Stores the identity and the session that a sign-in with a provider leaves. */
export async function signedIn(
  service: TestService,
  { providerId, userId, at }: { providerId: string; userId: string; at: Instant },
): Promise<void> {
  const stamps = { last_login_at: at, created_at: at, updated_at: at }
  const subject = { external_id: newId(), email: 'a@example.com', profile: '{}' }
  const tokens = { access_token: null, refresh_token: null, token_expires_at: null }
  const state = { state_hash: newId(), nonce: 'n', code_verifier: 'v', redirect_path: '/' }
  await service.storage.write(async (tx) => {
    const identity = {
      id: newId(),
      provider_id: providerId,
      user_id: userId,
      ...subject,
      ...tokens,
      ...stamps,
    }
    await tx.insertInto('sso_identities').values(identity).execute()
    const session = { provider_id: providerId, ...state, created_at: at, expires_at: addSeconds(at, 600) }
    await tx.insertInto('sso_sessions').values(session).execute()
  })
}

/** The number of pending sign-ins and of identities of a provider. */
export async function knownBy({ storage: { read } }: TestService, providerId: string): Promise<number[]> {
  const sessions = read.selectFrom('sso_sessions').select('state_hash').where('provider_id', '=', providerId)
  const identities = read.selectFrom('sso_identities').select('id').where('provider_id', '=', providerId)
  return [(await sessions.execute()).length, (await identities.execute()).length]
}

export const fault = (path: string, message: unknown) =>
  expect.objectContaining({ status: 400, details: [{ path, message }] })
