import { type JWTPayload, SignJWT } from 'jose'
import { expect } from 'vitest'
import { api } from '../../src/api.ts'
import type { BodyOf } from '../../src/core/endpoint.ts'
import { type Outbound, OutboundFailure } from '../../src/core/outbound.ts'
import type { Open } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { TokenIssuer } from './issuer.ts'

export const github = 'https://token.actions.githubusercontent.com'
export const gitlab = 'https://gitlab.com'
export const audience = 'https://svc.example.com'

/** The claims of GitHub for a run of the bakery's repository. */
export const run: JWTPayload = {
  sub: 'repo:bakery/tills:environment:production',
  aud: audience,
  repository: 'bakery/tills',
  repository_id: '74291847',
  repository_owner: 'bakery',
  repository_owner_id: '65',
  environment: 'production',
  ref: 'refs/heads/main',
  sha: '4a1d8f5b7c3e2a90',
  workflow_ref: 'bakery/tills/.github/workflows/release.yml@refs/heads/main',
  event_name: 'push',
  actor: 'ada',
  actor_id: '12',
  run_id: '9876543210',
  run_attempt: '2',
}

export const releases = {
  name: 'Releases',
  issuer: github,
  audience,
  claims: { repository_id: '74291847', environment: 'production' },
  permissions: ['organizations:read', 'organizations:write'],
  maxUsage: 5,
  maxTtlMinutes: 30,
}

/** A fake network with these issuers; hosts named inner… resolve internally. */
export function outsideOf(issuers: readonly TokenIssuer[]): Outbound {
  return {
    async send({ url }) {
      for (const issuer of issuers) {
        const reply = await issuer.answer(url)
        if (reply) return reply
      }
      throw new OutboundFailure('refused', `connect ECONNREFUSED ${url}`)
    },
    locateHost: async ({ hostname }) =>
      hostname.startsWith('inner')
        ? { network: 'private by name', addresses: ['10.0.0.1'] }
        : { network: 'public' },
    close: async () => {},
  }
}

/** A service with the world, in which the administrator of the bakery trusts the runs of a repository. */
export async function start(open: Open, env: Record<string, string> = {}, clock = testClock()) {
  const issuer = new TokenIssuer(github)
  const other = new TokenIssuer(gitlab)
  const outside = { outbound: outsideOf([issuer, other]) }
  const service = await startService(open, { clock, env, outside })
  const world = await buildWorld(service)
  const client = service.client(world.tokens.bakery)
  const system = service.client(world.tokens.system)
  const create = async (more: Partial<BodyOf<typeof api.trustPolicies.create>> = {}, by = client) =>
    (await by.call(api.trustPolicies.create, { body: { ...releases, ...more } })).data
  const change = async (id: string, body: BodyOf<typeof api.trustPolicies.update>) =>
    (await client.call(api.trustPolicies.update, { params: { id }, body })).data
  const tokenOf = (claims: JWTPayload = {}) => issuer.token({ ...run, ...claims }, clock())
  const exchange = (token: string, more: object = {}, at: TestService = service) =>
    at.client().call(api.trust.exchange, { body: { token, ...more } })
  /** Signs a run in, and returns its client. */
  const signIn = async (claims: JWTPayload = {}) =>
    service.client((await exchange(await tokenOf(claims))).accessToken)
  return {
    clock,
    issuer,
    other,
    outside,
    service,
    world,
    ...world.orgs,
    client,
    system,
    create,
    change,
    tokenOf,
    exchange,
    signIn,
  }
}

/** The error for a refused token; with a reason only if its issuer has signed it. */
export const refused = (reason?: string) =>
  expect.objectContaining({
    status: 401,
    code: 'federated_token_refused',
    message: 'The token was not accepted',
    details: reason === undefined ? undefined : { reason },
  })

/** A token with the algorithm "none". */
export function unsigned(claims: object): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  return `${part({ alg: 'none', typ: 'JWT' })}.${part(claims)}.`
}

/** A token signed with a public key as a shared secret. */
export const withPublicKey = (pem: string, claims: JWTPayload): Promise<string> =>
  new SignJWT(claims).setProtectedHeader({ alg: 'HS256', typ: 'JWT' }).sign(new TextEncoder().encode(pem))
