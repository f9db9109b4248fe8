import { Problem } from '../../core/errors.ts'
import { type Instant, secondsBetween } from '../../core/time.ts'

/**
 * An identity provider vouches for people in its own organization. Whoever runs it could be anybody there, and
 * nobody anywhere else: what such a session does stays inside.
 * @throws forbidden
 */
export function checkNotSsoSession({ ssoProviderId }: { ssoProviderId: string | null }): void {
  if (ssoProviderId === null) return
  throw new Problem(
    'forbidden',
    'You came in by the identity provider of one organization. Sign in with your password for this',
  )
}

/** Seconds in which a spent refresh token is a race between two clients rather than a theft. */
export const refreshGraceSeconds = 15

export type RefreshUse = 'current' | 'raced' | 'reused'

/** What presenting this refresh token to its family means. */
export function classifyRefresh(
  session: { tokenHash: string; previousHash: string | null; rotatedAt: Instant },
  presented: string,
  now: Instant,
): RefreshUse {
  if (presented === session.tokenHash) return 'current'
  const raced =
    presented === session.previousHash && secondsBetween(session.rotatedAt, now) <= refreshGraceSeconds
  return raced ? 'raced' : 'reused'
}
