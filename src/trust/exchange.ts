import { Problem } from '../core/errors.ts'
import { isStorable } from '../core/schema.ts'
import { organizationScope, systemScope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { type HandlersOf, inSteps } from '../handler.ts'
import { TokenFailure } from '../sso/token-verifier.ts'
import type { Db } from '../storage/open.ts'
import type * as contract from './contract.ts'
import type { IssuerRegistry } from './issuers.ts'
import {
  type Claims,
  decodeClaims,
  describeRun,
  findTokenFault,
  lookupKeysIn,
  matchPolicy,
  maxTextLength,
  mismatchedClaims,
  replayKeyOf,
  runClaims,
  subjectOf,
  type TrustPolicyRecord,
} from './rules.ts'
import * as store from './store.ts'
import { type WorkloadTokens, workloadTtlSeconds } from './tokens.ts'

type Trust = typeof contract.trust
type AcceptedToken = { policy: TrustPolicyRecord; claims: Claims; accessToken: string }

/**
 * Exchanges tokens of CI systems for tokens of this service. Every refusal looks the same from outside; only a
 * caller with a token signed by its issuer gets a reason, and only about that token. The audit log has the
 * rest.
 */
export const exchangeHandlers = (on: {
  issuers: IssuerRegistry
  tokens: WorkloadTokens
}): HandlersOf<Trust> => ({
  exchange: inSteps<Trust['exchange'], AcceptedToken>({
    async prepare({ storage: { read }, body, now }) {
      const { token, orgId, policyId } = body
      const issuer = decodeClaims(token)?.iss
      const isText = typeof issuer === 'string' && isStorable(issuer)
      if (!isText || !(await store.isTrusted(read, systemScope, issuer))) {
        const stated = typeof issuer === 'string' ? issuer.slice(0, maxTextLength) : null
        throw refusal({ cause: 'unknown_issuer', details: { issuer: stated } })
      }
      const scope = orgId === undefined ? systemScope : organizationScope(orgId)
      const isNamed = orgId !== undefined || policyId !== undefined
      const named = isNamed ? await store.findPolicyOf(read, scope, issuer, policyId) : undefined
      const claims = await on.issuers.claimsOf(token, issuer, now).catch((error: unknown) => {
        if (!(error instanceof TokenFailure)) throw error
        const details = { issuer, message: error.message.slice(0, maxTextLength) }
        throw refusal({ cause: error.fault, policy: named, details })
      })

      const led = await store.listPoliciesByKey(read, scope, issuer, lookupKeysIn(claims))
      const policies = led.filter(({ id }) => policyId === undefined || id === policyId)
      const refused = (reason: string) => refusalOf(reason, claims, named ?? soleOrgPolicy(policies))
      const fault = findTokenFault(claims, now)
      if (fault !== undefined) throw refused(fault)
      const { policy, reason } = matchPolicy(policies, claims)
      if (!policy) throw refused(reason)
      const { id, version, permissions } = policy
      const workload = { policyId: id, version, orgId: policy.orgId, permissions, run: describeRun(claims) }
      return { policy, claims, accessToken: await on.tokens.sign(workload, new Date(now)) }
    },

    async run({ db, now, note }, { policy, claims, accessToken }) {
      const { id, name, orgId, issuer, permissions } = policy
      await recordExchange(db, policy, claims, now)
      note({ orgId, resourceId: id, resourceName: name, actor: { kind: 'workload', id, email: null } })
      const workload = { policy: name, run: describeRun(claims) }
      note({ details: { issuer, subject: subjectOf(claims), workload, claims: runClaims(claims) } })
      return { accessToken, expiresInSeconds: workloadTtlSeconds, permissions, orgId, policy: { id, name } }
    },
  }),
})

/**
 * Accepts a token once, however many callers present it, and only if the policy has not changed since it was
 * checked.
 */
async function recordExchange(
  db: Db,
  policy: TrustPolicyRecord,
  claims: Claims,
  now: Instant,
): Promise<void> {
  const isFirst = await store.consumeToken(db, replayKeyOf(policy.issuer, claims, now))
  if (!isFirst) throw refusalOf('replayed', claims, policy)
  const stands = await store.recordUse(db, organizationScope(policy.orgId), policy, now)
  if (!stands) throw refusalOf('no_policy', claims, policy)
}

/**
 * The policy whose organization's audit log reports a token that no policy accepts; none where several
 * organizations could be meant.
 */
const soleOrgPolicy = ([first, ...others]: readonly TrustPolicyRecord[]): TrustPolicyRecord | undefined =>
  others.some(({ orgId }) => orgId !== first?.orgId) ? undefined : first

/** Refusal of a token with a valid signature. */
function refusalOf(reason: string, claims: Claims, policy: TrustPolicyRecord | undefined): Problem {
  const { iss: issuer } = claims
  const differs = policy && { differs: mismatchedClaims(policy, claims) }
  const details = {
    issuer,
    subject: subjectOf(claims),
    run: describeRun(claims),
    claims: runClaims(claims),
    ...differs,
  }
  return refusal({ cause: reason, policy, details, reason })
}

function refusal(why: {
  cause: string
  policy?: TrustPolicyRecord | undefined
  details: Record<string, unknown>
  /** Reason that may be reported to the caller. */
  reason?: string
}): Problem {
  const { cause, policy, reason } = why
  const of = policy && { policy: { id: policy.id, name: policy.name } }
  return new Problem('federated_token_refused', undefined, {
    ...(reason !== undefined && { details: { reason } }),
    refusal: {
      action: 'auth.federated.failed',
      orgId: policy?.orgId ?? null,
      details: { reason: cause, ...of, ...why.details },
    },
  })
}
