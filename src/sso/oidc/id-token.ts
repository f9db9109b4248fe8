import { hash } from 'node:crypto'
import { decodeProtectedHeader } from 'jose'
import { type Instant, issuerClockSkew } from '../../core/time.ts'
import { type FailureCode, SsoFailure } from '../failures.ts'
import { TokenFailure, type TokenFault, type TokenVerifier } from '../token-verifier.ts'
import type { IdTokenClaims } from './claims.ts'

/** What an ID token is checked against: issuer, audience, and the sign-in. */
export type ExpectedToken = {
  issuer: string
  clientId: string
  jwksUrl: string
  nonce: string
  /** The access token issued with it. */
  accessToken: string | null
  now: Instant
}

const failureOfFault: Record<TokenFault, FailureCode> = {
  keys_unavailable: 'sso_keys_unavailable',
  key_unknown: 'sso_key_unknown',
  signature_invalid: 'sso_signature_invalid',
  algorithm_refused: 'sso_algorithm_refused',
  token_malformed: 'sso_token_malformed',
}

/**
 * The claims of an ID token, after every check of OpenID Connect Core 1.0, 3.1.3.7.
 * @throws SsoFailure, of the first check that fails
 */
export async function verifyIdToken(
  token: string,
  keys: TokenVerifier,
  expected: ExpectedToken,
): Promise<IdTokenClaims> {
  const claims = await keys.verify(token, expected.jwksUrl).catch((error: unknown) => {
    if (!(error instanceof TokenFailure)) throw error
    throw new SsoFailure(failureOfFault[error.fault], error.message)
  })
  checkIssuer(claims, expected)
  checkAudience(claims, expected)
  checkTimes(claims, expected)
  checkNonce(claims, expected)
  checkAccessToken(claims, token, expected)
  return claims
}

/**
 * The claims of a signed user info reply (5.3.2), from the same issuer and for this client. The caller compares
 * its subject with that of the ID token.
 * @throws SsoFailure
 */
export async function verifyUserInfo(
  token: string,
  keys: TokenVerifier,
  expected: Pick<ExpectedToken, 'issuer' | 'clientId' | 'jwksUrl'>,
): Promise<IdTokenClaims> {
  const refused = (why: string) => new SsoFailure('sso_userinfo_failed', `it is signed, but ${why}`)
  const claims = await keys.verify(token, expected.jwksUrl).catch((error: unknown) => {
    if (!(error instanceof TokenFailure)) throw error
    throw refused(`${error.fault.replaceAll('_', ' ')}: ${error.message}`)
  })
  const { iss, aud } = claims
  if (iss !== expected.issuer) throw refused(`of ${shown(iss)}, not "${expected.issuer}"`)
  const isOurs = (Array.isArray(aud) ? aud : [aud]).includes(expected.clientId)
  if (!isOurs) throw refused(`for ${shown(aud)}, not "${expected.clientId}"`)
  return claims
}

/** 3.1.3.7, 2: an exact match. */
function checkIssuer({ iss }: IdTokenClaims, { issuer }: ExpectedToken): void {
  if (iss !== issuer) throw new SsoFailure('sso_issuer_mismatch', `it says ${shown(iss)}, not "${issuer}"`)
}

/** 3.1.3.7, 3 to 5: for this client, and if it is for others too, issued to this client. */
function checkAudience({ aud, azp }: IdTokenClaims, { clientId }: ExpectedToken): void {
  const all = Array.isArray(aud) ? aud : [aud]
  if (!all.includes(clientId)) {
    throw new SsoFailure('sso_audience_mismatch', `it is for ${shown(aud)}, not "${clientId}"`)
  }
  const isOthers = azp === undefined ? all.length > 1 : azp !== clientId
  if (isOthers) throw new SsoFailure('sso_audience_mismatch', `it was given to ${shown(azp)}`)
}

/** 3.1.3.7, 9 and 10. */
function checkTimes({ exp, iat, nbf }: IdTokenClaims, { now }: ExpectedToken): void {
  const seconds = Date.parse(now) / 1000
  if (typeof exp !== 'number' || exp + issuerClockSkew <= seconds) {
    throw new SsoFailure('sso_token_expired', `at ${instantOf(exp)}; here it is ${now}`)
  }
  for (const begin of [iat, nbf]) {
    if (begin === undefined) continue
    if (typeof begin !== 'number' || begin - issuerClockSkew > seconds) {
      throw new SsoFailure('sso_clock_ahead', `it is of ${instantOf(begin)}; here it is ${now}`)
    }
  }
}

/** 3.1.3.7, 11. */
function checkNonce({ nonce }: IdTokenClaims, expected: ExpectedToken): void {
  if (nonce === expected.nonce) return
  throw new SsoFailure('sso_nonce_mismatch', nonce === undefined ? 'it has none' : 'it is another one')
}

/** 3.1.3.6: `at_hash` is the left half of the access token's hash; it is optional. */
function checkAccessToken({ at_hash }: IdTokenClaims, token: string, { accessToken }: ExpectedToken): void {
  if (at_hash === undefined || accessToken === null) return
  const { alg = '' } = decodeProtectedHeader(token)
  const digest = hash(digestOf(alg), accessToken, 'buffer')
  const half = digest.subarray(0, digest.length / 2).toString('base64url')
  if (at_hash !== half) throw new SsoFailure('sso_access_token_mismatch', 'at_hash is another one')
}

const digestOf = (alg: string): string => (alg === 'EdDSA' ? 'sha512' : `sha${alg.slice(2)}`)

const shown = (value: unknown): string => (JSON.stringify(value) ?? 'nothing').slice(0, 500)

const instantOf = (seconds: unknown): string => {
  const time = new Date(Number(seconds) * 1000)
  return typeof seconds === 'number' && !Number.isNaN(time.getTime()) ? time.toISOString() : 'no time'
}
