import { hash } from 'node:crypto'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { newId } from '../../../src/core/new-id.ts'
import {
  type FailureKind,
  type Outbound,
  OutboundFailure,
  type OutboundReply,
} from '../../../src/core/outbound.ts'
import type { Clock } from '../../../src/core/time.ts'
import { documentOf, issuer } from '../provider-fixture.ts'

type Claims = Record<string, unknown>
type Grant = { nonce: string; challenge: string; redirectUri: string; person: Claims }

const pair = generateKeyPair('RS256', { extractable: true })
const other = generateKeyPair('RS256', { extractable: true })

/** A configurable OpenID Connect provider; it receives all outbound requests of the service. */
export function identityProvider(clock: Clock) {
  const grants = new Map<string, Grant>()
  const self = {
    clientId: 'svc',
    clientSecret: 'hush',
    kid: 'first',
    /** Claims that are added to the ID token or replace its usual ones. */
    idClaims: {} as Claims,
    userInfo: undefined as Claims | undefined,
    /** If set, the user info is sent as this signed token. */
    userInfoToken: undefined as ((claims: Claims) => Promise<string>) | undefined,
    idToken: undefined as ((claims: Claims) => Promise<string | undefined>) | undefined,
    /** Replacements of its replies, by path. */
    replies: {} as Record<string, { status?: number; body?: unknown; fails?: FailureKind }>,
    asked: [] as string[],
    secrets: [] as string[],
    /** Signs a user in, and returns the redirect of the browser. */
    async authorize(location: string, person: Claims, more: Record<string, string> = {}): Promise<string> {
      const { searchParams: query } = new URL(location)
      const code = newId()
      const grant = { nonce: query.get('nonce')!, challenge: query.get('code_challenge')! }
      grants.set(code, { ...grant, redirectUri: query.get('redirect_uri')!, person })
      const back = new URL(query.get('redirect_uri')!)
      const answer = { code, state: query.get('state')!, iss: issuer, session_state: 'x', ...more }
      for (const [name, value] of Object.entries(answer)) if (value !== '') back.searchParams.set(name, value)
      return back.href
    },
    outbound: {
      async send({ url, headers, body = '' }): Promise<OutboundReply> {
        const { pathname, origin } = new URL(url)
        if (origin !== issuer) throw new OutboundFailure('refused', `connect ECONNREFUSED ${origin}`)
        self.asked.push(pathname)
        const said = self.replies[pathname]
        if (said?.fails) throw new OutboundFailure(said.fails, `it failed: ${said.fails}`)
        const [status, json] = said
          ? [said.status ?? 200, said.body]
          : await answerTo(pathname, headers, new URLSearchParams(body.toString()))
        const text = typeof json === 'string' ? json : JSON.stringify(json)
        const type =
          self.userInfoToken && pathname === '/userinfo' ? 'application/jwt; charset=utf-8' : undefined
        const typed: Record<string, string> = type === undefined ? {} : { 'content-type': type }
        return { status, headers: typed, body: Buffer.from(text), isWhole: true, milliseconds: 1 }
      },
      locateHost: async () => ({ network: 'public' }),
      close: async () => {},
    } satisfies Outbound,
  }

  async function answerTo(
    path: string,
    headers: Record<string, string>,
    form: URLSearchParams,
  ): Promise<[number, unknown]> {
    if (path.endsWith('/openid-configuration')) return [200, documentOf(issuer)]
    if (path === '/keys') {
      const { publicKey } = await pair
      return [200, { keys: [{ ...(await exportJWK(publicKey)), kid: self.kid, alg: 'RS256' }] }]
    }
    if (path === '/token') return token(headers, form)
    const grant = [...grants.values()].at(-1)
    const claims = self.userInfo ?? grant?.person ?? {}
    return [200, self.userInfoToken ? await self.userInfoToken(claims) : claims]
  }

  async function token(headers: Record<string, string>, form: URLSearchParams): Promise<[number, unknown]> {
    const [id, secret] = Buffer.from((headers.authorization ?? '').slice(6), 'base64')
      .toString()
      .split(':')
    const isClient =
      decodeURIComponent(id ?? '') === self.clientId && decodeURIComponent(secret ?? '') === self.clientSecret
    if (!isClient)
      return [401, { error: 'invalid_client', error_description: 'client authentication failed' }]
    const grant = grants.get(form.get('code') ?? '')
    const proves = hash('sha256', form.get('code_verifier') ?? '', 'base64url') === grant?.challenge
    if (!grant || !proves) return [400, { error: 'invalid_grant' }]
    if (form.get('redirect_uri') !== grant.redirectUri) {
      return [400, { error: 'invalid_grant', error_description: 'redirect_uri did not match' }]
    }
    const now = Math.floor(Date.parse(clock()) / 1000)
    const claims = {
      iss: issuer,
      aud: self.clientId,
      exp: now + 300,
      iat: now,
      nonce: grant.nonce,
      ...grant.person,
      ...self.idClaims,
    }
    const idToken = self.idToken ? await self.idToken(claims) : await signed(claims)
    return [
      200,
      {
        access_token: 'access-token',
        token_type: 'Bearer',
        expires_in: 3600,
        refresh_token: 'again',
        ...(idToken !== undefined && { id_token: idToken }),
      },
    ]
  }

  /** Signs with the published key, or with another one under the same name. */
  async function signed(claims: Claims, by: 'its' | 'another' = 'its', kid = self.kid): Promise<string> {
    const { privateKey } = await (by === 'its' ? pair : other)
    return new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid }).sign(privateKey)
  }

  return Object.assign(self, { signed })
}
export type IdentityProvider = ReturnType<typeof identityProvider>
