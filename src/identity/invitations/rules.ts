import { invalid } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Tenant } from '../rules.ts'

/** How long a link works. */
export const invitationDays = 7
export const invitationSeconds = invitationDays * 24 * 3600

/** An invitation with the account it is for. */
export type Invitation = {
  id: string
  userId: string
  tenant: Tenant
  expiresAt: Instant
  acceptedAt: Instant | null
  /** The inviter saw the link as well. */
  shown: boolean
  email: string
  name: string
  status: string
  hasPassword: boolean
}

/**
 * State of an invitation link. An account that has a password never gets another by a link, whoever requested
 * it.
 */
export function invitationState(
  invitation: Invitation | undefined,
  now: Instant,
): 'open' | 'accepted' | 'unknown' {
  if (!invitation) return 'unknown'
  if (invitation.acceptedAt !== null || invitation.hasPassword) return 'accepted'
  return invitation.expiresAt > now && invitation.status !== 'disabled' ? 'open' : 'unknown'
}

export const refusalMessages = {
  unknown: 'Invalid or expired invite token',
  accepted: 'This invite has already been accepted',
} as const

/** A refusal to accept, reported as an error of the token. */
export const invalidInvitation = (state: keyof typeof refusalMessages) =>
  invalid([{ path: 'body.token', message: refusalMessages[state] }], refusalMessages[state])
