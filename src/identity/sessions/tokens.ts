import { hash } from 'node:crypto'
import { randomBytes } from '../../core/random.ts'
import type { SessionContext } from '../rules.ts'
import { createJwtSigner, type JwtSecrets } from './jwt.ts'

export const accessSeconds = 15 * 60
export const refreshSeconds = 7 * 24 * 3600
export const familySeconds = 30 * 24 * 3600
/** A person who is removed at the identity provider must not stay signed in for weeks. */
export const ssoFamilySeconds = 24 * 3600

/** Claims of an access token; everything else is looked up at each request. */
export type AccessClaims = {
  userId: string
  sessionId: string
  context: SessionContext
  /** Both must equal the user's; otherwise the session was ended. */
  authEpoch: number
  mfaEpoch: number
  mfa: boolean
}

/** `expiresAt`: milliseconds since 1970. */
type VerifiedClaims = AccessClaims & { expiresAt: number }

export type AccessTokens = {
  sign(claims: AccessClaims, now: Date): Promise<string>
  /** undefined for anything but an unexpired access token of this service. */
  verify(token: string, now: Date): Promise<VerifiedClaims | undefined>
}

/** Access tokens: JWT, HS256, 15 minutes. */
export function createAccessTokens(...secrets: JwtSecrets): AccessTokens {
  const tokens = createJwtSigner(secrets, { audience: 'service-api', type: 'access', seconds: accessSeconds })
  return {
    sign({ userId, sessionId: sid, context: ctx, authEpoch: aep, mfaEpoch: mep, mfa }, now) {
      return tokens.sign(userId, { sid, ctx, aep, mep, mfa }, now)
    },
    async verify(token, now) {
      const found = await tokens.verify(token, now)
      if (!found) return undefined
      const { subject: userId, claims, expiresAt } = found
      return {
        userId,
        sessionId: claims.sid as string,
        context: claims.ctx as SessionContext,
        authEpoch: claims.aep as number,
        mfaEpoch: claims.mep as number,
        mfa: claims.mfa === true,
        expiresAt,
      }
    },
  }
}

/** The cookie with a browser's refresh token. */
export const refreshCookie = 'service_refresh_token'

export const tokenHash = (token: string): string => hash('sha256', token, 'hex')

export const newToken = (): string => randomBytes(32).toString('base64url')

/** `<session id>.<random>`: the id finds the family even when the token was spent long ago. */
export const refreshToken = (sessionId: string): string => `${sessionId}.${newToken()}`

export const sessionOfRefreshToken = (token: string): string => token.slice(0, token.indexOf('.'))
