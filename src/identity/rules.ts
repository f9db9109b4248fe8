import type { Access } from '../core/endpoint.ts'
import { type ErrorCode, Problem } from '../core/errors.ts'
import { hasPermission } from '../core/permissions.ts'
import { isNarrowed, organizationScope, type Scope, systemScope } from '../core/scope.ts'

/** Which of a person's memberships a session acts through. */
export type Context =
  | { kind: 'system' }
  | { kind: 'partner'; partnerId: string }
  | { kind: 'organization'; orgId: string }

/** What a person can belong to. */
export type Tenant = Exclude<Context, { kind: 'system' }>

/**
 * A membership as it stands. `usable`: it is accepted and not disabled, and its tenant may be worked in. `invited`: it
 * would be, if its holder accepted it.
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
      /** The partner waits for approval: its people may sign in, and do what is open while enrolling. */
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
      /** null: not accepted. `provider`: by single sign-on alone, which is then the only way in. */
      acceptedBy: 'holder' | 'provider' | null
      usable: boolean
      invited: boolean
      /** The invitation is an identity provider's, for somebody who has an account already. */
      provisioned: boolean
      disabled: boolean
    }

/**
 * The membership a sign-in uses: the one asked for, else the partner's, else the oldest organization's. Who has none
 * that can be used may look at what waits for them: a partner to be approved, an invitation to be accepted.
 * `memberships` come oldest first. undefined: this person cannot sign in there.
 */
export function chooseContext(
  isSystem: boolean,
  memberships: readonly Membership[],
  asked: { orgId?: string | undefined; partnerId?: string | undefined },
): Context | undefined {
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
    return contextOf(usable.find(fits))
  }
  if (isSystem) return { kind: 'system' }
  return contextOf(usable.find((one) => one.kind === 'partner') ?? usable[0])
}

function contextOf(membership: Membership | undefined): Context | undefined {
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

/** Who asks to be let in, as far as the decision goes. */
export type Subject =
  | { kind: 'nobody' }
  | { kind: 'agent' }
  /** A program; `permissions`: its scopes, as far as they count. */
  | { kind: 'api_key'; scope: Scope; permissions: ReadonlySet<string> }
  /** A job of a CI system; `permissions`: those its trust policy names. */
  | { kind: 'workload'; scope: Scope; permissions: ReadonlySet<string> }
  | {
      kind: 'user'
      scope: Scope
      permissions: ReadonlySet<string>
      /** The session carries a verified factor. */
      mfa: boolean
      mfaEnabled: boolean
      mfaDemanded: boolean
      /** Why this person cannot act at all; a signed-in caller has none. */
      barred?: 'account_inactive' | 'tenant_inactive' | Waiting | undefined
    }

/** Why somebody may sign in, and do no more than what is open while enrolling. */
export type Waiting = 'tenant_pending' | 'invitation_pending'

const waits = (barred: string | undefined): boolean =>
  barred === 'tenant_pending' || barred === 'invitation_pending'

export type Verdict =
  | { allowed: true }
  | { allowed: false; code: ErrorCode; message?: string; details?: unknown; enrollUrl?: string }

const welcome: Verdict = { allowed: true }
const refused = (code: ErrorCode, more: { message?: string; details?: unknown; enrollUrl?: string } = {}) =>
  ({ allowed: false, code, ...more }) satisfies Verdict

/**
 * Whether an entry is open to someone. Every request is decided here, and
 * so is every explanation of a decision. Which records they then reach is the business of their scope.
 */
export function judge(access: Access, subject: Subject, mfaOn: boolean): Verdict {
  if (access.who === 'public') {
    const known = access.session && subject.kind === 'user'
    const barred = known && !waits(subject.barred) ? subject.barred : undefined
    return barred ? refused(barred) : welcome
  }
  if (subject.kind === 'nobody') return refused('unauthenticated')
  if (access.who === 'agent') {
    return subject.kind === 'agent' ? welcome : refused('invalid_agent_credentials')
  }
  if (subject.kind === 'api_key') return judgeKey(access, subject)
  if (subject.kind === 'workload') return judgeWorkload(access, subject)
  if (subject.kind !== 'user') return refused('invalid_token')
  const { scope, permissions, mfa, mfaEnabled, mfaDemanded, barred } = subject
  if (barred !== undefined && !(waits(barred) && access.whileEnrolling)) return refused(barred)
  if (mfaOn && mfaDemanded && !access.whileEnrolling) {
    return refused('mfa_enrollment_required', { enrollUrl })
  }
  if (!access.scopes.includes(scope.kind)) return refused('scope_not_allowed')
  if (access.permission !== undefined && !hasPermission(permissions, access.permission)) {
    return refused('forbidden', { message: 'Permission denied', details: { required: access.permission } })
  }
  if (access.wholePartner && scope.kind === 'partner' && scope.orgs !== 'all') {
    return refused('partner_access_limited')
  }
  if (access.wholeOrganization && isNarrowed(scope)) return refused('site_access_denied', seesPart)
  if (mfaOn && access.mfa && !mfa) return refused('mfa_required', mfaEnabled ? {} : { enrollUrl })
  return welcome
}

type UserAccess = Extract<Access, { who: 'user' }>

const seesPart = { message: 'Your access is limited to some sites or device groups' }

function judgeKey(access: UserAccess, key: Extract<Subject, { kind: 'api_key' }>): Verdict {
  if (!access.key) return refused('unauthenticated', { message: 'Missing or invalid authorization header' })
  if (!access.scopes.includes(key.scope.kind)) return refused('scope_not_allowed')
  if (access.wholeOrganization && isNarrowed(key.scope)) return refused('site_access_denied', seesPart)
  const { permission } = access
  if (permission === undefined || hasPermission(key.permissions, permission)) return welcome
  return refused('api_key_scope', { details: { required: permission } })
}

/** Whoever named its permissions had a verified factor: its token counts as one, for these alone. */
function judgeWorkload(access: UserAccess, subject: Extract<Subject, { kind: 'workload' }>): Verdict {
  const { permission } = access
  if (!access.workload || permission === undefined) {
    return refused('forbidden', { message: 'This is not open to workloads' })
  }
  if (!access.scopes.includes(subject.scope.kind)) return refused('scope_not_allowed')
  if (hasPermission(subject.permissions, permission)) return welcome
  return refused('forbidden', { message: 'Permission denied', details: { required: permission } })
}

/** Refuses a caller the entry is not for. @throws the code of the verdict */
export function checkAccess(access: Access, subject: Subject, mfaOn: boolean): void {
  const verdict = judge(access, subject, mfaOn)
  if (verdict.allowed) return
  const { code, message, details, enrollUrl: url } = verdict
  throw new Problem(code, message, {
    ...(details !== undefined && { details }),
    ...(url !== undefined && { enrollUrl: url }),
  })
}

/**
 * Whether a person has to enrol a factor before anything else: a role with Force MFA takes an authenticator
 * app alone, the setting of a tenant any factor.
 */
export const mustEnrol = (
  demands: { forceMfa: boolean; requiresMfa: boolean },
  mfaMethod: string | null,
): boolean => (demands.forceMfa && mfaMethod !== 'totp') || (demands.requiresMfa && mfaMethod === null)

/**
 * Whether these permissions let one set everything in a tenant right again. A partner's highest role is the
 * wildcard; an organization's is one that rules its users and so every role in it.
 */
export const isFullAdmin = (kind: Tenant['kind'], permissions: ReadonlySet<string>): boolean =>
  kind === 'partner' ? permissions.has('*:*') : hasPermission(permissions, 'users:write')

/** Where a person enrols a factor. */
export const enrollUrl = '/auth/mfa/setup'

/** An address in the letters that mail servers know it by. */
export const plainEmail = (email: string): string => email.normalize('NFKC').trim()

/** What two spellings of one address have in common. */
export const foldEmail = (email: string): string => plainEmail(email).toLowerCase()

/** The organization a session acts in; null in the other scopes. */
export const orgOf = (context: Context): string | null =>
  context.kind === 'organization' ? context.orgId : null

/**
 * The organization that hears of what somebody does in a context, in its audit log and by its webhooks: one that they
 * have not joined, but were invited to, hears nothing of them.
 */
export const orgThatHears = (context: Context, membership: Membership | undefined): string | null =>
  membership?.acceptedBy ? orgOf(context) : null

/** The same of the memberships of somebody. */
export const orgThatHearsAmong = (context: Context, memberships: readonly Membership[]): string | null =>
  orgThatHears(
    context,
    memberships.find((one) => one.kind === 'organization' && one.orgId === orgOf(context)),
  )

/** All of one tenant. */
export const scopeOfTenant = (tenant: Tenant): Scope =>
  tenant.kind === 'partner'
    ? { kind: 'partner', partnerId: tenant.partnerId, orgs: 'all' }
    : organizationScope(tenant.orgId)

/** The other way round from `scopeOf`. */
export function contextIn(scope: Scope): Context {
  if (scope.kind === 'partner') return { kind: 'partner', partnerId: scope.partnerId }
  return scope.kind === 'organization' ? { kind: 'organization', orgId: scope.orgId } : { kind: 'system' }
}
