import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { findUser, type User } from '../store.ts'
import { type Challenge, findChallenge } from './store.ts'
import { tokenHash } from './tokens.ts'

/** The sign-in that waits for its second step, and whose it is. @throws invalid_mfa_session */
export async function getChallenged(
  db: Db,
  tempToken: string,
  now: Instant,
): Promise<{ challenge: Challenge; user: User }> {
  const challenge = await findChallenge(db, tokenHash(tempToken))
  const user = challenge && (await findUser(db, challenge.userId))
  const live = challenge && challenge.expiresAt > now && user?.mfaEpoch === challenge.mfaEpoch
  if (!live || !user || user.status !== 'active') throw new Problem('invalid_mfa_session')
  return { challenge, user }
}
