import { Problem } from '../core/errors.ts'
import { missingPermissions } from '../core/permissions.ts'
import type { UserCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { findGrants, findMembership } from './memberships.ts'
import { mustEnrollMfa, type SessionContext, scopeOf } from './rules.ts'
import { findSessionUser } from './sessions/store.ts'
import type { AccessClaims } from './sessions/tokens.ts'

const allPermissions: ReadonlySet<string> = new Set(['*:*'])

/**
 * The person behind a verified access token, from the current state of the database: session, status, epochs,
 * membership, role.
 * @throws invalid_token, account_inactive, tenant_inactive
 */
export async function findCaller(db: Db, claims: AccessClaims): Promise<UserCaller> {
  const user = await findSessionUser(db, claims.sessionId)
  if (
    user?.id !== claims.userId ||
    user.authEpoch !== claims.authEpoch ||
    user.mfaEpoch !== claims.mfaEpoch
  ) {
    throw new Problem('invalid_token')
  }
  if (user.status !== 'active') throw new Problem('account_inactive')

  const { id, email, name } = user
  const mfaEnabled = user.mfaMethod !== null
  const person = {
    kind: 'user' as const,
    id,
    email,
    name,
    mfa: claims.mfa,
    mfaEnabled,
    sessionId: claims.sessionId,
    ssoProviderId: user.ssoProviderId,
    endsBy: user.endsBy,
    provedAt: user.provedAt,
  }

  if (claims.context.kind === 'system') {
    if (!user.isSystem) throw new Problem('invalid_token')
    return {
      ...person,
      scope: scopeOf(undefined),
      roleId: null,
      permissions: allPermissions,
      mfaDemanded: false,
    }
  }
  const membership = await findMembership(db, id, claims.context)
  if (!membership) throw new Problem('invalid_token')
  if (membership.disabled) throw new Problem('account_inactive')
  const barred = membership.invited
    ? ('invitation_pending' as const)
    : membership.kind === 'partner' && membership.pending
      ? ('tenant_pending' as const)
      : undefined
  if (!membership.usable && !barred) throw new Problem('tenant_inactive')
  const grants = await findGrants(db, membership.roleId)
  // An invitation grants nothing yet.
  const { permissions, forceMfa } = membership.invited
    ? { permissions: new Set<string>(), forceMfa: false }
    : grants
  // A person who gained permissions since has to sign in again through a provider that asserts them.
  if (user.assertedPermissions && missingPermissions(user.assertedPermissions, permissions).length > 0)
    throw new Problem('invalid_token')
  const mfaDemanded = mustEnrollMfa({ forceMfa, requiresMfa: membership.requiresMfa }, user.mfaMethod)
  const { roleId } = membership
  return { ...person, scope: scopeOf(membership), roleId, permissions, mfaDemanded, barred }
}

/** Whether a person who signs in there has to enroll a factor first. */
export async function requiresMfaEnrollment(
  db: Db,
  user: { id: string; mfaMethod: string | null },
  context: SessionContext,
): Promise<boolean> {
  const membership = await findMembership(db, user.id, context)
  if (!membership) return false
  const { forceMfa } = await findGrants(db, membership.roleId)
  return mustEnrollMfa({ forceMfa, requiresMfa: membership.requiresMfa }, user.mfaMethod)
}
