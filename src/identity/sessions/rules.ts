import { Problem } from '../../core/errors.ts'
import { type Instant, secondsBetween } from '../../core/time.ts'

/**
 * An identity provider asserts identities for its own organization only. Its operator can act as any member
 * there, and must not act as anyone elsewhere: such a session is confined to the organization.
 * @throws forbidden
 */
export function checkNotSsoSession({ ssoProviderId }: { ssoProviderId: string | null }): void {
  if (ssoProviderId === null) return
  throw new Problem(
    'forbidden',
    'You came in by the identity provider of one organization. Sign in with your password for this',
  )
}

/** Whether a session was revoked or has expired. */
export const hasEnded = (
  { revokedAt, expiresAt }: { revokedAt: Instant | null; expiresAt: Instant },
  now: Instant,
): boolean => revokedAt !== null || expiresAt <= now

/** Seconds during which a spent refresh token counts as a race between two clients rather than a theft. */
const refreshGraceSeconds = 15

export type RefreshUse = 'current' | 'raced' | 'reused'

/** Classifies a presented refresh token within its family. */
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
