import { newId } from '../../core/new-id.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { SessionContext } from '../rules.ts'
import type { User } from '../store.ts'
import {
  type AccessTokens,
  accessSeconds,
  familySeconds,
  refreshToken,
  ssoFamilySeconds,
  tokenHash,
} from './tokens.ts'

export type GrantedSession = Awaited<ReturnType<typeof grantSession>>

type SessionRequest = {
  context: SessionContext
  mfa: boolean
  /** Id of the session to continue, if any. */
  id?: string
  ssoProviderId: string | null
  /** Expiry of the session it replaces: a session must not outlive the provider's last check. */
  endsBy?: Instant | null
  /** When its holder last authenticated; now by default. */
  provedAt?: Instant | null
}

/** Tokens for a session that the transaction will store. */
export async function grantSession(
  access: AccessTokens,
  user: Pick<User, 'id' | 'authEpoch' | 'mfaEpoch'>,
  session: SessionRequest,
  now: Instant,
) {
  const { context, mfa, id = newId(), ssoProviderId, endsBy } = session
  const provedAt = session.provedAt ?? now
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
      provedAt,
      authEpoch,
      mfaEpoch,
      tokenHash: tokenHash(refresh),
      expiresAt: endsBy ?? addSeconds(now, ssoProviderId === null ? familySeconds : ssoFamilySeconds),
    },
    tokens: { accessToken, refreshToken: refresh, expiresInSeconds: accessSeconds },
  }
}
