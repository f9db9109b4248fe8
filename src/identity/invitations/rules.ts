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
  /** Whoever invited saw the link as well. */
  shown: boolean
  email: string
  name: string
  status: string
  hasPassword: boolean
}

/**
 * What a link is still good for. An account that has a password is never given another by it, whoever asked
 * for the link.
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

/** A refusal to accept, as a fault of the token. */
export const invalidInvitation = (state: keyof typeof refusalMessages) =>
  invalid([{ path: 'body.token', message: refusalMessages[state] }], refusalMessages[state])
