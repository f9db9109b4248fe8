import { organizationScope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { TokenFailure } from '../sso/token-verifier.ts'
import type { Storage } from '../storage/open.ts'
import type { IssuerRegistry } from './issuers.ts'
import {
  type Claims,
  claimText,
  decodeClaims,
  findTokenFault,
  hasAudience,
  lookupKeysIn,
  matchPolicy,
  replayKeyOf,
  type TrustPolicyRecord,
  type WorkloadTokenFault,
} from './rules.ts'
import * as store from './store.ts'

export type Check = { check: string; ok: boolean; message: string }

type On = { storage: Storage; issuers: IssuerRegistry }

/** Runs the checks of an exchange for a test; the token is not consumed. */
export async function runChecks(
  on: On,
  policy: TrustPolicyRecord,
  token: string,
  now: Instant,
): Promise<{ checks: Check[]; claims: Claims }> {
  const claims = decodeClaims(token)
  if (!claims) {
    const message = 'It is not a JWT: three parts of base64url with dots between them'
    return { checks: [{ check: 'format', ok: false, message }], claims: {} }
  }
  const checks = [
    checkIssuer(policy, claims),
    await checkSignature(on, policy, token, now),
    checkTime(claims, now),
    await checkReplay(on, policy, claims, now),
    checkAudience(policy, claims),
    ...Object.keys(policy.claims).map((name) => checkClaim(policy, claims, name)),
    await checkPolicy(on, policy, claims),
  ]
  return { checks, claims }
}

function checkIssuer({ issuer }: TrustPolicyRecord, { iss }: Claims): Check {
  const ok = iss === issuer
  return {
    check: 'issuer',
    ok,
    message: ok ? `It is of ${issuer}` : `It is of ${quote(iss)}, not of ${issuer}`,
  }
}

async function checkSignature(
  on: On,
  { issuer }: TrustPolicyRecord,
  token: string,
  now: Instant,
): Promise<Check> {
  const check = 'signature'
  try {
    await on.issuers.claimsOf(token, issuer, now)
    return { check, ok: true, message: 'It is signed with a key that the issuer publishes' }
  } catch (error) {
    if (!(error instanceof TokenFailure)) throw error
    return { check, ok: false, message: `${faults[error.fault]}: ${error.message}` }
  }
}

const faults: Record<TokenFailure['fault'], string> = {
  keys_unavailable: 'The keys of the issuer could not be read',
  key_unknown: 'It is signed with a key that the issuer does not publish',
  signature_invalid: 'The signature is not right',
  algorithm_refused: 'It is not signed with a public key',
  token_malformed: 'It is not a signed token',
}

function checkTime(claims: Claims, now: Instant): Check {
  const fault = findTokenFault(claims, now)
  return { check: 'time', ok: fault === undefined, message: fault ? times[fault] : 'It counts now' }
}

const times: Record<WorkloadTokenFault, string> = {
  incomplete: 'It does not say when it was made (iat), until when it counts (exp) and which it is (jti)',
  expired: 'It has expired: ask the CI system for a new one',
  not_yet_valid: 'It is from the future: the clocks are more than a minute apart',
  too_old: 'It was made more than an hour ago: ask the CI system for a new one',
}

async function checkReplay(
  { storage: { read } }: On,
  { issuer }: TrustPolicyRecord,
  claims: Claims,
  now: Instant,
): Promise<Check> {
  const check = 'use'
  if (findTokenFault(claims, now) === 'incomplete')
    return { check, ok: false, message: 'It cannot be told from others' }
  const isUsed = await store.isTokenUsed(read, replayKeyOf(issuer, claims, now).hash)
  return {
    check,
    ok: !isUsed,
    message: isUsed ? 'It was used before: each signs in once' : 'It was not used yet',
  }
}

function checkAudience({ audience }: TrustPolicyRecord, claims: Claims): Check {
  const ok = hasAudience(claims, audience)
  const message = ok ? `It is for ${audience}` : `It is for ${quote(claims.aud)}, not for ${audience} alone`
  return { check: 'audience', ok, message }
}

function checkClaim(policy: TrustPolicyRecord, claims: Claims, name: string): Check {
  const wanted = policy.claims[name]!
  const ok = claimText(claims, name) === wanted
  const stated = Object.hasOwn(claims, name) ? `${name} is ${quote(claims[name])}` : `${name} is missing`
  return { check: `claims.${name}`, ok, message: ok ? stated : `${stated}, and has to be "${wanted}"` }
}

/** Whether an exchange would consider this policy. */
async function checkPolicy(
  { storage: { read } }: On,
  policy: TrustPolicyRecord,
  claims: Claims,
): Promise<Check> {
  const check = 'policy'
  const scope = organizationScope(policy.orgId)
  if (policy.status !== 'active') return { check, ok: false, message: 'It is inactive' }
  if (!(await store.findPolicyInUse(read, scope, policy.id))) {
    return { check, ok: false, message: 'Its organization is not in use' }
  }
  const { policy: chosen } = matchPolicy(
    await store.listPoliciesByKey(read, scope, policy.issuer, lookupKeysIn(claims)),
    claims,
  )
  if (!chosen || chosen.id === policy.id) return { check, ok: true, message: 'It is active' }
  const message = `The older policy "${chosen.name}" takes it, unless this one is named: --policy ${policy.id}`
  return { check, ok: false, message }
}

const quote = (value: unknown): string => (JSON.stringify(value) ?? 'nobody').slice(0, 300)
