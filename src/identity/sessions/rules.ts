import { Problem } from '../../core/errors.ts'
import { type Instant, later, secondsBetween } from '../../core/time.ts'

/**
 * An identity provider vouches for people in its own organization. Whoever runs it could be anybody there, and
 * nobody anywhere else: what such a session does stays inside.
 * @throws forbidden
 */
export function checkBySso({ ssoProviderId }: { ssoProviderId: string | null }): void {
  if (ssoProviderId === null) return
  throw new Problem(
    'forbidden',
    'You came in by the identity provider of one organization. Sign in with your password for this',
  )
}

/** Wrong passwords before an account is locked, and for how long. */
export const lockout = { failures: 5, seconds: 15 * 60 }

export const isLocked = (user: { lockedUntil: Instant | null }, now: Instant): boolean =>
  user.lockedUntil !== null && user.lockedUntil > now

export function afterWrongPassword(
  user: { failedLogins: number },
  now: Instant,
): { failedLogins: number; lockedUntil: Instant | null } {
  const failedLogins = user.failedLogins + 1
  return failedLogins >= lockout.failures
    ? { failedLogins: 0, lockedUntil: later(now, lockout.seconds) }
    : { failedLogins, lockedUntil: null }
}

/** Seconds in which a spent refresh token is a race between two clients rather than a theft. */
export const refreshGrace = 15

export type Spent = 'current' | 'raced' | 'reused'

/** What presenting this refresh token to its family means. */
export function judgeRefresh(
  session: { tokenHash: string; previousHash: string | null; rotatedAt: Instant },
  presented: string,
  now: Instant,
): Spent {
  if (presented === session.tokenHash) return 'current'
  const raced = presented === session.previousHash && secondsBetween(session.rotatedAt, now) <= refreshGrace
  return raced ? 'raced' : 'reused'
}
