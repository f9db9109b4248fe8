import { Problem } from '../core/errors.ts'
import { organizationScope } from '../core/scope.ts'
import type { WorkloadCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { grantableOf } from './rules.ts'
import { findPolicyInUse, holdTrustPolicy } from './store.ts'
import type { WorkloadClaims } from './tokens.ts'

/**
 * The workload behind a verified token of this service, from the current state of the database: its policy has
 * not changed since the token was issued, and its organization is in use.
 * @throws invalid_token
 */
export async function findWorkload(db: Db, claims: WorkloadClaims): Promise<WorkloadCaller> {
  const { policyId: id, orgId, version, run } = claims
  const scope = organizationScope(orgId)
  const policy = await findPolicyInUse(db, scope, id)
  if (policy?.version !== version) throw new Problem('invalid_token')
  const { name, maxUsage, maxTtlMinutes } = policy
  const permissions = new Set(claims.permissions)
  return {
    kind: 'workload',
    id,
    name,
    orgId,
    scope,
    permissions,
    keyLimits: { maxUsage, maxTtlMinutes },
    grantable: grantableOf(permissions, { maxUsage, maxTtlMinutes }),
    version,
    run,
  }
}

/**
 * The same once more, in the transaction of a change: the job was admitted before its body was read, and what it makes would
 * outlive the policy. Until the transaction ends nobody changes or deletes the policy.
 * @throws invalid_token
 */
export async function holdWorkload(tx: Db, { id, orgId, version }: WorkloadCaller): Promise<void> {
  const scope = organizationScope(orgId)
  await holdTrustPolicy(tx, scope, id)
  const policy = await findPolicyInUse(tx, scope, id)
  if (policy?.version !== version) throw new Problem('invalid_token')
}
