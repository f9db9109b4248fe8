import { hash } from 'node:crypto'
import type { Outbound } from '../../core/outbound.ts'
import type { Instant } from '../../core/time.ts'
import type { AssertedIdentity } from '../asserted-identity.ts'
import { type FailureCode, SsoFailure } from '../failures.ts'
import type { ProviderRecord } from '../rules.ts'
import type { TokenVerifier } from '../token-verifier.ts'
import type { SignInTrace } from '../trace.ts'
import { type IdTokenClaims, identityFromClaims } from './claims.ts'
import { verifyIdToken, verifyUserInfo } from './id-token.ts'
import { exchangeCode, fetchUserInfo } from './tokens.ts'

/** The address that a browser is sent to for the sign-in (OpenID Connect Core 1.0, 3.1.2.1; RFC 7636, 4.3). */
export function authorizationUrl(
  { authorizationUrl: address, clientId, scopes }: ProviderRecord,
  {
    state,
    nonce,
    verifier,
    redirectUri,
  }: { state: string; nonce: string; verifier: string; redirectUri: string },
): string {
  const url = new URL(address!)
  const query = {
    response_type: 'code',
    client_id: clientId!,
    redirect_uri: redirectUri,
    scope: scopes,
    state,
    nonce,
    code_challenge: pkceChallenge(verifier),
    code_challenge_method: 'S256',
  }
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
  return url.href
}

/** S256 of RFC 7636, 4.2. */
export const pkceChallenge = (verifier: string): string => hash('sha256', verifier, 'base64url')

/** Parameters of the callback address, besides the state. */
export type CallbackParams = {
  code?: string | undefined
  error?: string | undefined
  error_description?: string | undefined
  iss?: string | undefined
}

/** The identity that the provider asserts for a callback with a code. @throws SsoFailure */
export async function identityFromCode(
  answer: CallbackParams,
  {
    provider,
    nonce,
    verifier,
    redirectUri,
  }: { provider: ProviderRecord; nonce: string; verifier: string; redirectUri: string },
  on: { outbound: Outbound; keys: TokenVerifier; now: Instant; trace: SignInTrace },
): Promise<AssertedIdentity> {
  const { outbound, keys, now, trace } = on
  const code = readCode(answer, provider)
  trace.passed('The provider sent the browser back with a code')
  const tokens = await exchangeCode(outbound, provider, { code, verifier, redirectUri })
  const given = [tokens.id_token && 'an ID token', tokens.refresh_token && 'a refresh token'].filter(Boolean)
  trace.passed('The code was exchanged', `an access token${given.map((one) => `, ${one}`).join('')}`)
  const idToken = await readIdToken(tokens, { provider, nonce, keys, now })
  if (tokens.id_token) trace.passed('The ID token is right', trace.redactClaims(idToken))
  const { userInfoUrl, issuer, clientId, jwksUrl } = provider
  const verified = (token: string) =>
    verifyUserInfo(token, keys, { issuer: issuer!, clientId: clientId!, jwksUrl: jwksUrl! })
  const userInfo =
    userInfoUrl === null ? {} : await fetchUserInfo(outbound, userInfoUrl, tokens.access_token, verified)
  if (userInfoUrl !== null) trace.passed('The provider told about the person', trace.redactClaims(userInfo))
  const subject = readSubject(idToken, userInfo)
  return {
    ...identityFromClaims({ subject, idToken, userInfo }, provider.attributeMapping),
    tokens: {
      accessToken: tokens.access_token,
      refreshToken: tokens.refresh_token ?? null,
      expiresInSeconds: tokens.expires_in ?? null,
    },
  }
}

const failureOfError: Record<string, FailureCode> = {
  access_denied: 'sso_denied',
  login_required: 'sso_denied',
  interaction_required: 'sso_denied',
  consent_required: 'sso_denied',
  invalid_scope: 'sso_scope_refused',
  unauthorized_client: 'sso_client_rejected',
}

/** RFC 6749, 4.1.2. Checking `iss` (RFC 9207) prevents mixing in the reply of another provider. */
function readCode(
  { code, error, error_description: text = '', iss }: CallbackParams,
  { issuer }: ProviderRecord,
): string {
  if (iss !== undefined && iss !== issuer) {
    throw new SsoFailure('sso_issuer_mismatch', `the answer is of ${JSON.stringify(iss)}`)
  }
  if (error !== undefined) {
    const detail = `${error}${text && `: ${text}`}`.slice(0, 500)
    throw new SsoFailure(failureOfError[error] ?? 'sso_refused_by_provider', detail)
  }
  if (code === undefined) throw new SsoFailure('invalid_callback', 'the answer has no code')
  return code
}

/** An ID token is checked whenever there is one. */
async function readIdToken(
  tokens: { id_token?: string | undefined; access_token: string },
  {
    provider,
    nonce,
    keys,
    now,
  }: { provider: ProviderRecord; nonce: string; keys: TokenVerifier; now: Instant },
): Promise<IdTokenClaims> {
  if (tokens.id_token === undefined) return {}
  const { issuer, clientId, jwksUrl } = provider
  const expected = { issuer: issuer!, clientId: clientId!, jwksUrl: jwksUrl!, nonce, now }
  return verifyIdToken(tokens.id_token, keys, { ...expected, accessToken: tokens.access_token })
}

/** 5.3.2: user info about another subject is not used. */
function readSubject(idToken: IdTokenClaims, userInfo: IdTokenClaims): string {
  const [tokenSubject, infoSubject] = [idToken.sub, userInfo.sub]
  if (tokenSubject !== undefined && infoSubject !== undefined && tokenSubject !== infoSubject) {
    throw new SsoFailure('sso_subject_mismatch', 'the sub of the ID token and of the user info differ')
  }
  const subject = tokenSubject ?? infoSubject
  if (typeof subject === 'string' && subject !== '' && subject.length <= 255) return subject
  throw new SsoFailure('sso_no_subject')
}
