import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { findMembership } from '../memberships.ts'
import { notifiedOrg } from '../rules.ts'
import { findUser, type User } from '../store.ts'
import { type Challenge, findChallenge } from './store.ts'
import { tokenHash } from './tokens.ts'

/**
 * The sign-in that waits for its second step, its user, and the organization that is notified.
 * @throws invalid_mfa_session
 */
export async function getPendingChallenge(
  db: Db,
  tempToken: string,
  now: Instant,
): Promise<{ challenge: Challenge; user: User; orgId: string | null }> {
  const challenge = await findChallenge(db, tokenHash(tempToken))
  const user = challenge && (await findUser(db, challenge.userId))
  const live = challenge && challenge.expiresAt > now && user?.mfaEpoch === challenge.mfaEpoch
  if (!live || !user || user.status !== 'active') throw new Problem('invalid_mfa_session')
  const membership = await findMembership(db, user.id, challenge.context)
  return { challenge, user, orgId: notifiedOrg(challenge.context, membership) }
}
