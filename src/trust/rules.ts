import { hash } from 'node:crypto'
import { decodeJwt } from 'jose'
import { invalid, Problem } from '../core/errors.ts'
import { withoutUndefined } from '../core/json.ts'
import { isStorable } from '../core/schema.ts'
import { truncateStorable } from '../core/text.ts'
import { addSeconds, type Instant, issuerClockSkew } from '../core/time.ts'
import type { EnrollmentKeyLimits, UserCaller, WorkloadCaller } from '../handler.ts'
import { largestKeys, type NewTrustPolicy, type TrustPolicy, type TrustPolicyChange } from './contract.ts'

/** A policy including its internal fields. */
export type TrustPolicyRecord = TrustPolicy & {
  /** Grows with each change: a token issued under an earlier version is no longer valid. */
  version: number
}

/** Claims of a token. */
export type Claims = Readonly<Record<string, unknown>>

type KnownIssuer = {
  host: string
  issuer: string
  /** Claims that can never be those of another repository or account. */
  immutableClaims: readonly string[]
  /** Claims that restrict trust to a part of a repository. */
  narrowing: readonly string[]
}

const known: readonly KnownIssuer[] = [
  {
    host: 'GitHub',
    issuer: 'https://token.actions.githubusercontent.com',
    immutableClaims: ['repository_id', 'repository_owner_id'],
    narrowing: ['environment', 'ref', 'sub', 'workflow_ref', 'job_workflow_ref'],
  },
  {
    host: 'GitLab',
    issuer: 'https://gitlab.com',
    immutableClaims: ['project_id', 'namespace_id'],
    narrowing: ['environment', 'ref', 'ref_protected', 'sub', 'ci_config_ref_uri'],
  },
]

/** A GitHub enterprise may have its own issuer, below the common one. */
const findKnownIssuer = (issuer: string): KnownIssuer | undefined =>
  known.find((one) => issuer === one.issuer || issuer.startsWith(`${one.issuer}/`))

/** @throws invalid_request when its claims can become those of another account */
export function makePolicy(
  wanted: NewTrustPolicy & { orgId: string; audience: string },
  made: { id: string; by: string; now: Instant },
): TrustPolicyRecord {
  const { id, by: createdBy, now } = made
  const stamps = { createdBy, createdAt: now, updatedAt: now, lastUsedAt: null }
  const policy: TrustPolicyRecord = { ...wanted, id, version: 1, ...stamps }
  checkImmutableClaims(policy)
  return policy
}

/** @throws invalid_request when its claims can become those of another account */
export function applyChange(
  before: TrustPolicyRecord,
  change: TrustPolicyChange,
  now: Instant,
): TrustPolicyRecord {
  const after: TrustPolicyRecord = {
    ...before,
    ...withoutUndefined(change),
    version: before.version + 1,
    updatedAt: now,
  }
  checkImmutableClaims(after)
  return after
}

/**
 * A renamed repository frees its name for anyone to take, so a policy on the name alone could admit an
 * attacker.
 */
function checkImmutableClaims({ issuer, claims }: TrustPolicyRecord): void {
  const of = findKnownIssuer(issuer)
  if (!of || of.immutableClaims.some((name) => Object.hasOwn(claims, name))) return
  const ids = of.immutableClaims.join(' or ')
  const message = `must hold ${ids}: names on ${of.host} can be changed, and then taken by somebody else; these ids cannot`
  throw invalid([{ path: 'body.claims', message }])
}

/** Warning about a valid but broad policy. */
export function broadnessWarning({ issuer, claims }: TrustPolicyRecord): string | undefined {
  const of = findKnownIssuer(issuer)
  if (!of || of.narrowing.some((name) => Object.hasOwn(claims, name))) return undefined
  return 'Every branch and every pull request of the repository is trusted: name its environment or ref as well'
}

/** Whether a change can only remove access, for which the caller need not hold the permissions. */
export const onlyDeactivates = (change: TrustPolicyChange): boolean =>
  change.status === 'inactive' &&
  Object.entries(change).every(([field, value]) => field === 'status' || value === undefined)

type Author = UserCaller | WorkloadCaller

/** Nobody changes their own access: a workload would widen the trust in its repository, or shut itself out. @throws forbidden */
export function checkNotOwn({ kind, id }: Author, policy: Pick<TrustPolicy, 'id'>): void {
  if (kind !== 'workload' || id !== policy.id) return
  const message =
    'A workload cannot change the trust policy that it signed in by: a person, or another one, has to'
  throw new Problem('forbidden', message)
}

/** Jobs must not mint larger enrollment keys than the workload that grants them that. @throws forbidden */
export function checkMayGrantKeys(by: Author, policy: Omit<TrustPolicy, 'id'>): void {
  if (by.kind !== 'workload' || !policy.permissions.includes('organizations:write')) return
  const larger = (['maxUsage', 'maxTtlMinutes'] as const).filter((name) => policy[name] > by.keyLimits[name])
  if (larger.length === 0) return
  const limits = larger.map((name) => `${name} is at most ${by.keyLimits[name]}`).join(', ')
  throw new Problem(
    'forbidden',
    `Cannot grant larger enrollment keys than your own trust policy allows: ${limits}`,
  )
}

/** What a workload may give to people. They create enrollment keys without limits: so it gives that only with the largest limits. */
export function grantableOf(
  permissions: ReadonlySet<string>,
  { maxUsage, maxTtlMinutes }: EnrollmentKeyLimits,
): ReadonlySet<string> {
  const isLargest = maxUsage >= largestKeys.maxUsage && maxTtlMinutes >= largestKeys.maxTtlMinutes
  return isLargest ? permissions : new Set([...permissions].filter((one) => one !== 'organizations:write'))
}

/** The claim by which a policy is looked up: of its claims, the one that the fewest tokens share. */
export function lookupKeyOf({ issuer, claims }: Pick<TrustPolicy, 'issuer' | 'claims'>): string {
  const names = Object.keys(claims).sort()
  const best = [...(findKnownIssuer(issuer)?.immutableClaims ?? []), 'sub'].find((name) =>
    names.includes(name),
  )
  const name = best ?? names[0]!
  return formatKey(name, claims[name]!)
}

/** Most claims of a token that are looked up. */
const maxLookupKeys = 200

/** The claims of a token in the form of lookup keys. */
export const lookupKeysIn = (claims: Claims): string[] =>
  Object.keys(claims)
    .slice(0, maxLookupKeys)
    .flatMap((name) => {
      const value = claimText(claims, name)
      const lead = value === undefined ? '' : formatKey(name, value)
      // Text that cannot be stored is in no policy either.
      return lead !== '' && isStorable(lead) ? [lead] : []
    })

const formatKey = (name: string, value: string): string => `${name}=${value}`

/** A claim in the form that policies use: text unchanged, booleans and whole numbers as in JSON. */
export function claimText(claims: Claims, name: string): string | undefined {
  if (!Object.hasOwn(claims, name)) return undefined
  const value = claims[name]
  if (typeof value === 'string') return value
  return typeof value === 'boolean' || Number.isSafeInteger(value) ? String(value) : undefined
}

/** The claims of a token before its signature is verified; undefined when it is not a JWT. */
export function decodeClaims(token: string): Claims | undefined {
  try {
    return decodeJwt(token)
  } catch {
    // The verification, which follows, refuses it with a reason.
    return undefined
  }
}

const maxAgeSeconds = 3600

export type WorkloadTokenFault = 'incomplete' | 'expired' | 'not_yet_valid' | 'too_old'

/**
 * The fault of a token regardless of its audience. It has to state when it was issued, when it expires, and its
 * id.
 */
export function findTokenFault({ exp, nbf, iat, jti }: Claims, now: Instant): WorkloadTokenFault | undefined {
  const at = Date.parse(now) / 1000
  const isTime = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value)
  if (!isTime(exp) || !isTime(iat) || typeof jti !== 'string' || jti === '') return 'incomplete'
  if (nbf !== undefined && !isTime(nbf)) return 'incomplete'
  if (exp + issuerClockSkew <= at) return 'expired'
  if (Math.max(iat, nbf ?? iat) - issuerClockSkew > at) return 'not_yet_valid'
  return iat + maxAgeSeconds + issuerClockSkew <= at ? 'too_old' : undefined
}

/** The key under which a used token is stored, and until when: it is not accepted afterwards anyway. */
export function replayKeyOf(
  issuer: string,
  { jti, iat }: Claims,
  now: Instant,
): { hash: string; until: Instant } {
  const seconds = Number(iat) + maxAgeSeconds + 2 * issuerClockSkew - Date.parse(now) / 1000
  return { hash: hash('sha256', `${issuer}\n${String(jti)}`, 'hex'), until: addSeconds(now, seconds) }
}

/** Another recipient of a token with several audiences could replay it here. */
export function hasAudience({ aud }: Claims, audience: string): boolean {
  return Array.isArray(aud) ? aud.length === 1 && aud[0] === audience : aud === audience
}

/** The parts of a policy that a token does not match: its audience, and its claims by name. */
export const mismatchedClaims = (policy: TrustPolicy, claims: Claims): string[] => [
  ...(hasAudience(claims, policy.audience) ? [] : ['audience']),
  ...Object.keys(policy.claims).filter((name) => claimText(claims, name) !== policy.claims[name]),
]

export type PolicyMatch<P> =
  | { policy: P; reason?: undefined }
  | { policy?: undefined; reason: 'no_policy' | 'ambiguous' }

/**
 * The policy for a token: the oldest that matches. Any organization may trust a repository of others. Where
 * several organizations do, the job has to name the one it means; otherwise it could enroll machines into an
 * attacker's organization.
 */
export function matchPolicy<P extends TrustPolicy>(policies: readonly P[], claims: Claims): PolicyMatch<P> {
  const fitting = policies.filter((policy) => mismatchedClaims(policy, claims).length === 0)
  const [policy] = fitting
  if (!policy) return { reason: 'no_policy' }
  return fitting.some(({ orgId }) => orgId !== policy.orgId) ? { reason: 'ambiguous' } : { policy }
}

/** Claims about a run that the audit log stores, if its token has them. */
const auditedClaims = [
  'repository',
  'repository_id',
  'workflow_ref',
  'job_workflow_ref',
  'event_name',
  'actor',
  'actor_id',
  'run_id',
  'run_attempt',
  'project_path',
  'project_id',
  'pipeline_source',
  'pipeline_id',
  'job_id',
  'user_login',
  'user_id',
  'environment',
  'ref',
  'sha',
] as const

/** Most characters that are stored of text from other systems. */
export const maxTextLength = 255

export const runClaims = (claims: Claims): Record<string, string> =>
  Object.fromEntries(
    auditedClaims.flatMap((name) => {
      const value = claimText(claims, name)
      return value === undefined ? [] : [[name, value.slice(0, maxTextLength)]]
    }),
  )

export const subjectOf = (claims: Claims): string | null =>
  claimText(claims, 'sub')?.slice(0, maxTextLength) ?? null

/** Describes the run in words. */
export function describeRun(claims: Claims): string {
  const of = runClaims(claims)
  const named =
    of.run_id !== undefined
      ? `${of.repository ?? of.repository_id} run ${of.run_id} attempt ${of.run_attempt ?? 1}`
      : of.pipeline_id !== undefined
        ? `${of.project_path ?? of.project_id} pipeline ${of.pipeline_id} job ${of.job_id}`
        : (subjectOf(claims) ?? 'without a name')
  return truncateStorable(named, maxTextLength)
}

/** The changed fields, before and after. */
export function difference(before: TrustPolicyRecord, after: TrustPolicyRecord) {
  const { updatedAt: _, version: __, ...all } = after
  const changed = (Object.keys(all) as (keyof typeof all)[]).filter(
    (field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]),
  )
  const of = (policy: TrustPolicyRecord) => Object.fromEntries(changed.map((field) => [field, policy[field]]))
  return { before: of(before), after: of(after), details: { changedFields: changed } }
}

/** The policy in replies. */
export const toTrustPolicy = ({ version: _, ...policy }: TrustPolicyRecord): TrustPolicy => policy
