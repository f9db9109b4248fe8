import type { Access } from '../core/endpoint.ts'
import { type ErrorCode, Problem } from '../core/errors.ts'
import { hasPermission } from '../core/permissions.ts'
import { isNarrowed, organizationScope, type Scope, systemScope } from '../core/scope.ts'

/** The membership that a session acts through. */
export type SessionContext =
  | { kind: 'system' }
  | { kind: 'partner'; partnerId: string }
  | { kind: 'organization'; orgId: string }

/** A tenant that a person can be a member of. */
export type Tenant = Exclude<SessionContext, { kind: 'system' }>

/**
 * The current state of a membership. `usable`: accepted and not disabled, and its tenant can be used.
 * `invited`: it would be usable if its holder accepted it.
 */
export type Membership =
  | {
      kind: 'partner'
      partnerId: string
      roleId: string
      orgs: 'all' | string[]
      acceptedBy: 'holder' | 'provider' | null
      usable: boolean
      invited: boolean
      /** The partner waits for approval: its users may sign in, and do what is open during enrollment. */
      pending: boolean
      disabled: boolean
    }
  | {
      kind: 'organization'
      orgId: string
      partnerId: string
      roleId: string
      siteIds: string[] | null
      groupIds: string[] | null
      /**
       * null: not accepted. `provider`: accepted by single sign-on alone, which is then the only way to sign
       * in.
       */
      acceptedBy: 'holder' | 'provider' | null
      usable: boolean
      invited: boolean
      /** An identity provider made the invitation, for a person who already had an account. */
      provisioned: boolean
      disabled: boolean
    }

/**
 * The membership a sign-in uses: the requested one, else the partner's, else the oldest organization's. A
 * person without a usable one may see what is pending: a partner awaiting approval, an invitation to accept.
 * `memberships` are ordered oldest first. undefined: this person cannot sign in there.
 */
export function chooseContext(
  isSystem: boolean,
  memberships: readonly Membership[],
  asked: { orgId?: string | undefined; partnerId?: string | undefined },
): SessionContext | undefined {
  const open = memberships.filter((one) => one.usable)
  const waiting = memberships.filter((one) => one.invited || (one.kind === 'partner' && one.pending))
  const usable = open.length > 0 ? open : waiting
  const { orgId, partnerId } = asked
  if (orgId !== undefined || partnerId !== undefined) {
    const kind = orgId === undefined ? 'partner' : 'organization'
    const fits = (one: Membership) =>
      one.kind === kind &&
      (partnerId === undefined || one.partnerId === partnerId) &&
      (one.kind === 'partner' || one.orgId === orgId)
    return contextOfMembership(usable.find(fits))
  }
  if (isSystem) return { kind: 'system' }
  return contextOfMembership(usable.find((one) => one.kind === 'partner') ?? usable[0])
}

function contextOfMembership(membership: Membership | undefined): SessionContext | undefined {
  if (!membership) return undefined
  return membership.kind === 'partner'
    ? { kind: 'partner', partnerId: membership.partnerId }
    : { kind: 'organization', orgId: membership.orgId }
}

export function scopeOf(membership: Membership | undefined): Scope {
  if (!membership) return systemScope
  return membership.kind === 'partner'
    ? { kind: 'partner', partnerId: membership.partnerId, orgs: membership.orgs }
    : {
        kind: 'organization',
        orgId: membership.orgId,
        siteIds: membership.siteIds,
        groupIds: membership.groupIds,
      }
}

/** The caller, as far as the access decision needs it. */
export type AccessSubject =
  | { kind: 'nobody' }
  | { kind: 'agent' }
  /** An API key; `permissions` are its effective scopes. */
  | { kind: 'api_key'; scope: Scope; permissions: ReadonlySet<string> }
  /** A CI job; `permissions` are those in its trust policy. */
  | { kind: 'workload'; scope: Scope; permissions: ReadonlySet<string> }
  | {
      kind: 'user'
      scope: Scope
      permissions: ReadonlySet<string>
      /** The session carries a verified factor. */
      mfa: boolean
      mfaEnabled: boolean
      mfaDemanded: boolean
      /** Why this person cannot act at all; undefined for a caller who can. */
      barred?: 'account_inactive' | 'tenant_inactive' | PendingReason | undefined
    }

/** Why a person may sign in but only do what is open during enrollment. */
type PendingReason = 'tenant_pending' | 'invitation_pending'

const isPending = (barred: string | undefined): boolean =>
  barred === 'tenant_pending' || barred === 'invitation_pending'

export type AccessDecision =
  | { allowed: true }
  | { allowed: false; code: ErrorCode; message?: string; details?: unknown; enrollUrl?: string }

const allowed: AccessDecision = { allowed: true }
const deny = (code: ErrorCode, more: { message?: string; details?: unknown; enrollUrl?: string } = {}) =>
  ({ allowed: false, code, ...more }) satisfies AccessDecision

/**
 * Decides whether a caller may use an endpoint of users, and explains such a decision. Agents are admitted by
 * `src/agents/principal.ts`. The caller's scope then limits the records they reach.
 */
export function decideAccess(access: Access, subject: AccessSubject, mfaOn: boolean): AccessDecision {
  if (access.who === 'public') {
    const known = access.session && subject.kind === 'user'
    const barred = known && !isPending(subject.barred) ? subject.barred : undefined
    return barred ? deny(barred) : allowed
  }
  if (subject.kind === 'nobody') return deny('unauthenticated')
  if (access.who === 'agent') {
    return subject.kind === 'agent' ? allowed : deny('invalid_agent_credentials')
  }
  if (subject.kind === 'api_key') return decideApiKey(access, subject)
  if (subject.kind === 'workload') return decideWorkload(access, subject)
  if (subject.kind !== 'user') return deny('invalid_token')
  const { scope, permissions, mfa, mfaEnabled, mfaDemanded, barred } = subject
  if (barred !== undefined && !(isPending(barred) && access.whileEnrolling)) return deny(barred)
  if (mfaOn && mfaDemanded && !access.whileEnrolling) {
    return deny('mfa_enrollment_required', { enrollUrl })
  }
  if (!access.scopes.includes(scope.kind)) return deny('scope_not_allowed')
  if (access.permission !== undefined && !hasPermission(permissions, access.permission)) {
    return deny('forbidden', { message: 'Permission denied', details: { required: access.permission } })
  }
  if (access.wholePartner && scope.kind === 'partner' && scope.orgs !== 'all') {
    return deny('partner_access_limited')
  }
  if (access.wholeOrganization && isNarrowed(scope))
    return deny('site_access_denied', { message: narrowedAccess })
  if (mfaOn && access.mfa && !mfa) return deny('mfa_required', mfaEnabled ? {} : { enrollUrl })
  return allowed
}

type UserAccess = Extract<Access, { who: 'user' }>

export const narrowedAccess = 'Your access is limited to some sites or device groups'

function decideApiKey(access: UserAccess, key: Extract<AccessSubject, { kind: 'api_key' }>): AccessDecision {
  if (!access.key)
    return deny('unauthenticated', { message: 'This needs an access token: an API key cannot call it' })
  if (!access.scopes.includes(key.scope.kind)) return deny('scope_not_allowed')
  if (access.wholeOrganization && isNarrowed(key.scope))
    return deny('site_access_denied', { message: narrowedAccess })
  const { permission } = access
  if (permission === undefined || hasPermission(key.permissions, permission)) return allowed
  return deny('api_key_scope', { details: { required: permission } })
}

/**
 * The person who wrote the trust policy had a verified factor, so the token counts as having one, for these
 * permissions only.
 */
function decideWorkload(
  access: UserAccess,
  subject: Extract<AccessSubject, { kind: 'workload' }>,
): AccessDecision {
  const { permission } = access
  if (access.workload === 'files') {
    const hint = 'svc config apply does this, by a policy that names config:apply as well'
    return deny('forbidden', { message: 'This is open to workloads in files alone', details: { hint } })
  }
  if (!access.workload) {
    const hint = 'a person can do this (svc login), or an API key'
    return deny('forbidden', { message: 'This is not open to workloads', details: { hint } })
  }
  if (!access.scopes.includes(subject.scope.kind)) return deny('scope_not_allowed')
  if (permission === undefined || hasPermission(subject.permissions, permission)) return allowed
  return deny('forbidden', { message: 'Permission denied', details: { required: permission } })
}

/** The same endpoint, called for files: what workloads do in files alone is open to them. */
export const accessInFiles = (access: UserAccess): UserAccess => ({
  ...access,
  workload: access.workload !== false,
})

/** Refuses a caller who may not use the endpoint. @throws the code of the verdict */
export function checkAccess(access: Access, subject: AccessSubject, mfaOn: boolean): void {
  const verdict = decideAccess(access, subject, mfaOn)
  if (verdict.allowed) return
  const { code, message, details, enrollUrl: url } = verdict
  throw new Problem(code, message, {
    ...(details !== undefined && { details }),
    ...(url !== undefined && { enrollUrl: url }),
  })
}

/**
 * Whether a person has to enroll a factor before anything else: a role with Force MFA accepts only an
 * authenticator app, the setting of a tenant any factor.
 */
export const mustEnrollMfa = (
  demands: { forceMfa: boolean; requiresMfa: boolean },
  mfaMethod: string | null,
): boolean => (demands.forceMfa && mfaMethod !== 'totp') || (demands.requiresMfa && mfaMethod === null)

/**
 * Whether these permissions are enough to repair everything in a tenant: a partner's highest role has the
 * wildcard; an organization's manages its users and so every role in it.
 */
export const isFullAdmin = (kind: Tenant['kind'], permissions: ReadonlySet<string>): boolean =>
  kind === 'partner' ? permissions.has('*:*') : hasPermission(permissions, 'users:write')

/** Where a person enrolls a factor. */
export const enrollUrl = '/auth/mfa/setup'

/** The organization a session acts in; null in the other scopes. */
export const orgOfContext = (context: SessionContext): string | null =>
  context.kind === 'organization' ? context.orgId : null

/**
 * The organization whose audit log and webhooks report what a person does in a context: an organization that
 * they were invited to but have not joined is not notified.
 */
export const notifiedOrg = (context: SessionContext, membership: Membership | undefined): string | null =>
  membership?.acceptedBy ? orgOfContext(context) : null

/** The same, given all memberships of a person. */
export const notifiedOrgAmong = (
  context: SessionContext,
  memberships: readonly Membership[],
): string | null =>
  notifiedOrg(
    context,
    memberships.find((one) => one.kind === 'organization' && one.orgId === orgOfContext(context)),
  )

/** All of one tenant. */
export const scopeOfTenant = (tenant: Tenant): Scope =>
  tenant.kind === 'partner'
    ? { kind: 'partner', partnerId: tenant.partnerId, orgs: 'all' }
    : organizationScope(tenant.orgId)

/** Inverse of `scopeOf`. */
export function contextOfScope(scope: Scope): SessionContext {
  if (scope.kind === 'partner') return { kind: 'partner', partnerId: scope.partnerId }
  return scope.kind === 'organization' ? { kind: 'organization', orgId: scope.orgId } : { kind: 'system' }
}
