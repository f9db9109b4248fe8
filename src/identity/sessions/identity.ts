import { enrollUrl } from '../rules.ts'
import type { User } from '../store.ts'
import type { GrantedSession } from './grant.ts'

/** The actor in the audit entry of a sign-in. */
export const loginFacts = ({ id, email }: User) => ({
  actor: { kind: 'user' as const, id, email },
  resourceId: id,
  resourceName: email,
})

export const loginFailedAction = 'user.login.failed'

/** A person as they see themselves. */
export function toIdentity(user: User) {
  return {
    id: user.id,
    email: user.email,
    name: user.name,
    avatarUrl: user.avatarUrl,
    status: user.status as 'active' | 'invited' | 'disabled',
    mfaEnabled: user.mfaMethod !== null,
    mfaMethod: user.mfaMethod as 'totp' | 'sms' | null,
    phoneVerified: user.phoneVerified,
    phoneLast4: user.phoneNumber?.slice(-4) ?? null,
    lastLoginAt: user.lastLoginAt,
    createdAt: user.createdAt,
  }
}

/** The reply to a completed sign-in. `demanded`: a factor has to be enrolled first. */
export const toSignInReply = (user: User, { tokens }: GrantedSession, demanded: boolean) => ({
  user: toIdentity(user),
  tokens,
  mfaRequired: false,
  mfaEnrollmentRequired: demanded,
  ...(demanded && { enrollUrl }),
})
