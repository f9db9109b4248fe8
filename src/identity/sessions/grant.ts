import { newId } from '../../core/new-id.ts'
import { type Instant, later } from '../../core/time.ts'
import type { Context } from '../rules.ts'
import type { User } from '../store.ts'
import {
  type AccessTokens,
  accessSeconds,
  familySeconds,
  refreshToken,
  ssoFamilySeconds,
  tokenHash,
} from './tokens.ts'

export type Granted = Awaited<ReturnType<typeof grantSession>>

/** Tokens for a session that the transaction will store. `id`: of the session that goes on, if one does. */
export async function grantSession(
  access: AccessTokens,
  user: Pick<User, 'id' | 'authEpoch' | 'mfaEpoch'>,
  session: { context: Context; mfa: boolean; id?: string; ssoProviderId: string | null },
  now: Instant,
) {
  const { context, mfa, id = newId(), ssoProviderId } = session
  const { id: userId, authEpoch, mfaEpoch } = user
  const refresh = refreshToken(id)
  const claims = { userId, sessionId: id, context, authEpoch, mfaEpoch, mfa }
  const accessToken = await access.sign(claims, new Date(now))
  return {
    session: {
      id,
      userId,
      context,
      mfa,
      ssoProviderId,
      tokenHash: tokenHash(refresh),
      expiresAt: later(now, ssoProviderId === null ? familySeconds : ssoFamilySeconds),
    },
    tokens: { accessToken, refreshToken: refresh, expiresInSeconds: accessSeconds },
  }
}
