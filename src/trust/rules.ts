import { hash } from 'node:crypto'
import { decodeJwt } from 'jose'
import { invalid } from '../core/errors.ts'
import { isStorable } from '../core/schema.ts'
import { truncateStorable } from '../core/text.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { NewTrustPolicy, TrustPolicy, TrustPolicyChange } from './contract.ts'

/** A policy with what it keeps to itself. */
export type TrustPolicyRecord = TrustPolicy & {
  /** Grows with each change: a token of the version before does not count any more. */
  version: number
}

/** What a token says. */
export type Claims = Readonly<Record<string, unknown>>

type KnownIssuer = {
  host: string
  issuer: string
  /** Claims that nobody else can come to have. */
  immutableClaims: readonly string[]
  /** Claims that tell what is trusted in a repository from whatever else runs there. */
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

/** An enterprise on GitHub may have an issuer of its own, below the common one. */
const findKnownIssuer = (issuer: string): KnownIssuer | undefined =>
  known.find((one) => issuer === one.issuer || issuer.startsWith(`${one.issuer}/`))

/** @throws invalid_request when its claims can become those of somebody else */
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

/** @throws invalid_request when its claims can become those of somebody else */
export function applyChange(
  before: TrustPolicyRecord,
  change: TrustPolicyChange,
  now: Instant,
): TrustPolicyRecord {
  const said = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined))
  const after: TrustPolicyRecord = { ...before, ...said, version: before.version + 1, updatedAt: now }
  checkImmutableClaims(after)
  return after
}

/** A repository that is renamed leaves its name to whoever takes it: such a name lets in anybody. */
function checkImmutableClaims({ issuer, claims }: TrustPolicyRecord): void {
  const of = findKnownIssuer(issuer)
  if (!of || of.immutableClaims.some((name) => Object.hasOwn(claims, name))) return
  const ids = of.immutableClaims.join(' or ')
  const message = `must hold ${ids}: names on ${of.host} can be changed, and then taken by somebody else; these ids cannot`
  throw invalid([{ path: 'body.claims', message }])
}

/** What is worth a warning, although it is what was asked for. */
export function broadnessWarning({ issuer, claims }: TrustPolicyRecord): string | undefined {
  const of = findKnownIssuer(issuer)
  if (!of || of.narrowing.some((name) => Object.hasOwn(claims, name))) return undefined
  return 'Every branch and every pull request of the repository is trusted: name its environment or ref as well'
}

/** Whether a change can only take access away, which nobody has to hold the permissions for. */
export const onlyDeactivates = (change: TrustPolicyChange): boolean =>
  change.status === 'inactive' &&
  Object.entries(change).every(([field, value]) => field === 'status' || value === undefined)

/** The claim that leads to a policy, of those that a token may say: the one that the fewest tokens share. */
export function lookupKeyOf({ issuer, claims }: Pick<TrustPolicy, 'issuer' | 'claims'>): string {
  const names = Object.keys(claims).sort()
  const best = [...(findKnownIssuer(issuer)?.immutableClaims ?? []), 'sub'].find((name) =>
    names.includes(name),
  )
  const name = best ?? names[0]!
  return formatKey(name, claims[name]!)
}

/** Of a token that says more only so many are looked at. */
const maxLookupKeys = 200

/** What a token says, as leads are spelled. */
export const lookupKeysIn = (claims: Claims): string[] =>
  Object.keys(claims)
    .slice(0, maxLookupKeys)
    .flatMap((name) => {
      const value = claimText(claims, name)
      const lead = value === undefined ? '' : formatKey(name, value)
      // What cannot be stored is in no policy either.
      return lead !== '' && isStorable(lead) ? [lead] : []
    })

const formatKey = (name: string, value: string): string => `${name}=${value}`

/** A claim as policies spell it: text as it is, yes or no and whole numbers as JSON does. */
export function claimText(claims: Claims, name: string): string | undefined {
  if (!Object.hasOwn(claims, name)) return undefined
  const value = claims[name]
  if (typeof value === 'string') return value
  return typeof value === 'boolean' || Number.isSafeInteger(value) ? String(value) : undefined
}

/** What a token says before its signature was looked at; undefined when it is no JWT. */
export function decodeClaims(token: string): Claims | undefined {
  try {
    return decodeJwt(token)
  } catch {
    return undefined
  }
}

/** Clocks may be apart by so much. */
const skewSeconds = 60
const maxAgeSeconds = 3600

export type TokenFault = 'incomplete' | 'expired' | 'not_yet_valid' | 'too_old'

/** What is wrong with a token whoever it is for. It has to say when it was made, how long it counts, and which it is. */
export function findTokenFault({ exp, nbf, iat, jti }: Claims, now: Instant): TokenFault | undefined {
  const at = Date.parse(now) / 1000
  const isTime = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value)
  if (!isTime(exp) || !isTime(iat) || typeof jti !== 'string' || jti === '') return 'incomplete'
  if (nbf !== undefined && !isTime(nbf)) return 'incomplete'
  if (exp + skewSeconds <= at) return 'expired'
  if (Math.max(iat, nbf ?? iat) - skewSeconds > at) return 'not_yet_valid'
  return iat + maxAgeSeconds + skewSeconds <= at ? 'too_old' : undefined
}

/** A token as it is remembered once it was used, and until when: nobody accepts it afterwards. */
export function replayKeyOf(
  issuer: string,
  { jti, iat }: Claims,
  now: Instant,
): { hash: string; until: Instant } {
  const seconds = Number(iat) + maxAgeSeconds + 2 * skewSeconds - Date.parse(now) / 1000
  return { hash: hash('sha256', `${issuer}\n${String(jti)}`, 'hex'), until: addSeconds(now, seconds) }
}

/** One that is for others as well could be brought here by them. */
export function hasAudience({ aud }: Claims, audience: string): boolean {
  return Array.isArray(aud) ? aud.length === 1 && aud[0] === audience : aud === audience
}

/** What of a policy a token does not say, or says otherwise: its audience, and its claims by their names. */
export const mismatchedClaims = (policy: TrustPolicy, claims: Claims): string[] => [
  ...(hasAudience(claims, policy.audience) ? [] : ['audience']),
  ...Object.keys(policy.claims).filter((name) => claimText(claims, name) !== policy.claims[name]),
]

export type PolicyMatch<P> =
  | { policy: P; reason?: undefined }
  | { policy?: undefined; reason: 'no_policy' | 'ambiguous' }

/**
 * The policy that a token signs in by: the oldest it fits. Anybody may trust a repository of others for their own
 * organization: where several organizations do, a job has to say which one it means, or it would put machines into
 * that of a stranger.
 */
export function matchPolicy<P extends TrustPolicy>(policies: readonly P[], claims: Claims): PolicyMatch<P> {
  const fitting = policies.filter((policy) => mismatchedClaims(policy, claims).length === 0)
  const [policy] = fitting
  if (!policy) return { reason: 'no_policy' }
  return fitting.some(({ orgId }) => orgId !== policy.orgId) ? { reason: 'ambiguous' } : { policy }
}

/** What the audit log keeps of a run, as far as its token says it. */
const auditedClaims = [
  ...['repository', 'repository_id', 'workflow_ref', 'job_workflow_ref', 'event_name', 'actor', 'actor_id'],
  ...['run_id', 'run_attempt', 'project_path', 'project_id', 'pipeline_source', 'pipeline_id', 'job_id'],
  ...['user_login', 'user_id', 'environment', 'ref', 'sha'],
] as const

/** Of what somebody else says no more is kept than this. */
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

/** Which run it is, in words. */
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

/** The fields that a change alters, as they were and as they are. */
export function difference(before: TrustPolicyRecord, after: TrustPolicyRecord) {
  const { updatedAt: _, version: __, ...all } = after
  const changed = (Object.keys(all) as (keyof typeof all)[]).filter(
    (field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]),
  )
  const of = (policy: TrustPolicyRecord) => Object.fromEntries(changed.map((field) => [field, policy[field]]))
  return { before: of(before), after: of(after), details: { changedFields: changed } }
}

/** As replies show it. */
export const toTrustPolicy = ({ version: _, ...policy }: TrustPolicyRecord): TrustPolicy => policy
