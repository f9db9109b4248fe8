import { settingsOf } from '../audit/rules.ts'
import { assertNotEmptyChange } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { Outbound } from '../core/outbound.ts'
import type { Clock, Instant } from '../core/time.ts'
import { type HandlersOf, inSteps } from '../handler.ts'
import { checkMayGrant } from '../identity/roles/rules.ts'
import { DiscoveryFailure } from '../sso/discovery.ts'
import { checkNotNarrowed } from '../sso/rules.ts'
import type { Storage } from '../storage/open.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'
import { checkOrg } from '../tenancy/store.ts'
import { type Check, runChecks } from './checks.ts'
import type * as contract from './contract.ts'
import { exchangeHandlers } from './exchange.ts'
import { type IssuerLogger, IssuerRegistry } from './issuers.ts'
import {
  applyChange,
  broadnessWarning,
  type Claims,
  checkMayGrantKeys,
  checkNotOwn,
  difference,
  makePolicy,
  onlyDeactivates,
  type TrustPolicyRecord,
  toTrustPolicy,
} from './rules.ts'
import * as store from './store.ts'
import type { WorkloadTokens } from './tokens.ts'

type Policies = typeof contract.trustPolicies

type On = {
  storage: Storage
  outbound: Outbound
  clock: Clock
  log: IssuerLogger
  tokens: WorkloadTokens
  publicUrl: () => string
}

export function trustHandlers(on: On): {
  trust: HandlersOf<typeof contract.trust>
  trustPolicies: HandlersOf<Policies>
} {
  const { tokens, publicUrl } = on
  const issuers = new IssuerRegistry(on)

  /** Discovery is optional: it is repeated when a token of the issuer arrives. */
  async function discoveryWarning(issuer: string | undefined, now: Instant): Promise<string | undefined> {
    if (issuer === undefined) return undefined
    try {
      await issuers.discover(issuer, now)
      return undefined
    } catch (error) {
      if (!(error instanceof DiscoveryFailure)) throw error
      return `OIDC discovery failed for issuer "${issuer}": ${error.message}. It is asked again with the first token`
    }
  }

  const makeRecord = (
    body: contract.NewTrustPolicy,
    orgId: string,
    by: { by: string; now: Instant },
  ): TrustPolicyRecord => {
    const { audience = publicUrl() } = body
    return makePolicy({ ...body, audience, orgId }, { id: newId(), ...by })
  }

  return {
    trust: exchangeHandlers({ issuers, tokens }),

    trustPolicies: {
      async list({ db, readQueryIfWide, scope, query }) {
        if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
        return readQueryIfWide((on) => store.listTrustPolicies(on, scope, query))
      },

      create: inSteps<Policies['create'], string | undefined>({
        async prepare({ storage, scope, caller, body, now, outside }) {
          checkNotNarrowed(scope)
          checkMayGrant(caller.permissions, body.permissions)
          const orgId = await resolveOrg(storage.read, scope, body.orgId)
          makeRecord(body, orgId, { by: caller.id, now })
          return outside(() => discoveryWarning(body.issuer, now))
        },
        async run({ db, scope, caller, body, now, note, quota }, warning) {
          const orgId = await resolveOrg(db, scope, body.orgId)
          const policy = makeRecord(body, orgId, { by: caller.id, now })
          checkMayGrantKeys(caller, policy)
          await quota({ orgId })
          await store.insertTrustPolicy(db, policy)
          note({ orgId, resourceId: policy.id, resourceName: policy.name, after: auditedPolicy(policy) })
          return toReply(policy, warning)
        },
      }),

      async show({ db, scope, params }) {
        return { data: toTrustPolicy(await store.getTrustPolicy(db, scope, params.id)) }
      },

      update: inSteps<Policies['update'], string | undefined>({
        async prepare({ storage, scope, params, body, now, outside }) {
          checkNotNarrowed(scope)
          const before = await store.getTrustPolicy(storage.read, scope, params.id)
          assertNotEmptyChange(body)
          applyChange(before, body, now)
          return outside(() => discoveryWarning(body.issuer, now))
        },
        async run({ db, scope, caller, params, body, now, note }, warning) {
          // Before it is locked: another job of the same policy may hold it, and wait for this one.
          checkNotOwn(caller, params)
          const before = await store.lockTrustPolicy(db, scope, params.id)
          const after = applyChange(before, body, now)
          // Checked on every change: whoever decides which tokens are accepted grants them all permissions of
          // the policy.
          if (!onlyDeactivates(body)) {
            checkMayGrant(caller.permissions, after.permissions)
            checkMayGrantKeys(caller, after)
          }
          await store.changeTrustPolicy(db, scope, after)
          note({ orgId: after.orgId, resourceId: after.id, resourceName: after.name })
          note(difference(before, after))
          return toReply(after, warning)
        },
      }),

      async remove({ db, scope, caller, params, note }) {
        checkNotNarrowed(scope)
        checkNotOwn(caller, params)
        const policy = await store.lockTrustPolicy(db, scope, params.id)
        await store.removeTrustPolicy(db, scope, policy.id)
        note({ orgId: policy.orgId, resourceName: policy.name, before: auditedPolicy(policy) })
        return { success: true }
      },

      test: inSteps<Policies['test'], { policy: TrustPolicyRecord; checks: Check[]; claims: Claims }>({
        async prepare({ storage, scope, params, body, now }) {
          const policy = await store.getTrustPolicy(storage.read, scope, params.id)
          return { policy, ...(await runChecks({ storage, issuers }, policy, body.token, now)) }
        },
        async run({ note }, { policy, checks, claims }) {
          const failed = checks.filter(({ ok }) => !ok).map(({ check }) => check)
          note({ orgId: policy.orgId, resourceName: policy.name, details: { failed } })
          return { accepted: failed.length === 0, checks, claims: { ...claims } }
        },
      }),
    },
  }
}

function toReply(policy: TrustPolicyRecord, discovery: string | undefined) {
  const warnings = [discovery, broadnessWarning(policy)].filter((one) => one !== undefined)
  return { data: toTrustPolicy(policy), ...(warnings.length > 0 && { warning: warnings.join('. ') }) }
}

function auditedPolicy(policy: TrustPolicyRecord): object {
  const { lastUsedAt: _, ...settings } = toTrustPolicy(policy)
  return settingsOf(settings)
}
