import { Problem } from '../core/errors.ts'
import { holds, type Permission } from '../core/permissions.ts'
import { everything, type Scope, type ScopeKind } from '../core/scope.ts'

/** Which of a person's memberships a session acts through. */
export type Context =
  | { kind: 'system' }
  | { kind: 'partner'; partnerId: string }
  | { kind: 'organization'; orgId: string }

/** What a person can belong to. */
export type Tenant = Exclude<Context, { kind: 'system' }>

/** A membership as it stands. `usable`: it is not disabled, and its tenant may be worked in. */
export type Membership =
  | {
      kind: 'partner'
      partnerId: string
      roleId: string
      orgs: 'all' | string[]
      usable: boolean
      disabled: boolean
    }
  | {
      kind: 'organization'
      orgId: string
      partnerId: string
      roleId: string
      siteIds: string[] | null
      groupIds: string[] | null
      usable: boolean
      disabled: boolean
    }

/**
 * The membership a sign-in uses: the one asked for, else the partner's, else the oldest organization's.
 * `memberships` come oldest first. undefined: this person cannot sign in there.
 */
export function chooseContext(
  isSystem: boolean,
  memberships: readonly Membership[],
  asked: { orgId?: string | undefined; partnerId?: string | undefined },
): Context | undefined {
  const usable = memberships.filter((one) => one.usable)
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
  if (!membership) return everything
  return membership.kind === 'partner'
    ? { kind: 'partner', partnerId: membership.partnerId, orgs: membership.orgs }
    : {
        kind: 'organization',
        orgId: membership.orgId,
        siteIds: membership.siteIds,
        groupIds: membership.groupIds,
      }
}

/**
 * Refuses a caller the entry is not for (spec, "Permission and scope rules").
 * @throws scope_not_allowed, forbidden, mfa_enrollment_required, mfa_required
 */
export function checkAccess(
  needs: {
    scopes: readonly ScopeKind[]
    permission?: Permission
    mfa: boolean
    whileEnrolling: boolean
    wholePartner: boolean
  },
  caller: {
    scope: Scope
    permissions: ReadonlySet<string>
    mfa: boolean
    mfaEnabled: boolean
    mfaDemanded: boolean
  },
  mfaOn: boolean,
): void {
  if (mfaOn && caller.mfaDemanded && !needs.whileEnrolling) {
    throw new Problem('mfa_enrollment_required', undefined, { enrollUrl })
  }
  if (!needs.scopes.includes(caller.scope.kind)) throw new Problem('scope_not_allowed')
  if (needs.permission !== undefined && !holds(caller.permissions, needs.permission)) {
    throw new Problem('forbidden', 'Permission denied', { details: { required: needs.permission } })
  }
  if (needs.wholePartner && caller.scope.kind === 'partner' && caller.scope.orgs !== 'all') {
    throw new Problem('partner_access_limited')
  }
  if (mfaOn && needs.mfa && !caller.mfa) {
    throw new Problem('mfa_required', undefined, caller.mfaEnabled ? {} : { enrollUrl })
  }
}

/**
 * Whether a person has to enrol a factor before anything else: a role with Force MFA takes an authenticator
 * app alone (spec, "Permission and scope rules" 8), the setting of a tenant any factor.
 */
export const mustEnrol = (
  demands: { forceMfa: boolean; requiresMfa: boolean },
  mfaMethod: string | null,
): boolean => (demands.forceMfa && mfaMethod !== 'totp') || (demands.requiresMfa && mfaMethod === null)

/** Where a person enrols a factor. */
export const enrollUrl = '/auth/mfa/setup'

export const foldEmail = (email: string): string => email.normalize('NFKC').trim().toLowerCase()

/** The organization a session acts in; null in the other scopes. */
export const orgOf = (context: Context): string | null =>
  context.kind === 'organization' ? context.orgId : null

/** The other way round from `scopeOf`. */
export function contextIn(scope: Scope): Context {
  if (scope.kind === 'partner') return { kind: 'partner', partnerId: scope.partnerId }
  return scope.kind === 'organization' ? { kind: 'organization', orgId: scope.orgId } : { kind: 'system' }
}
