import { hash } from 'node:crypto'
import { jwtVerify, SignJWT } from 'jose'
import { randomBytes } from '../../core/random.ts'
import type { Context } from '../rules.ts'

export const accessSeconds = 15 * 60
export const refreshSeconds = 7 * 24 * 3600
export const familySeconds = 30 * 24 * 3600
/** Who is let go at an identity provider does not stay for weeks. */
export const ssoFamilySeconds = 24 * 3600

const issuer = 'service'
const audience = 'service-api'

/** What an access token says; everything else is looked up at each request. */
export type AccessClaims = {
  userId: string
  sessionId: string
  context: Context
  /** Both must equal the user's, else the session was cut. */
  authEpoch: number
  mfaEpoch: number
  mfa: boolean
}

/** `expiresAt`: milliseconds since 1970. */
export type Verified = AccessClaims & { expiresAt: number }

export type AccessTokens = {
  sign(claims: AccessClaims, now: Date): Promise<string>
  /** undefined for anything but a token of ours that still runs. */
  verify(token: string, now: Date): Promise<Verified | undefined>
}

/** Access tokens: JWT, HS256, 15 minutes. */
export function accessTokens(secret: string): AccessTokens {
  const key = new TextEncoder().encode(secret)
  return {
    sign: (claims, now) =>
      new SignJWT({
        sid: claims.sessionId,
        ctx: claims.context,
        aep: claims.authEpoch,
        mep: claims.mfaEpoch,
        mfa: claims.mfa,
        type: 'access',
      })
        .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
        .setSubject(claims.userId)
        .setIssuer(issuer)
        .setAudience(audience)
        .setIssuedAt(now)
        .setExpirationTime(Math.floor(now.getTime() / 1000) + accessSeconds)
        .sign(key),
    async verify(token, now) {
      try {
        const { payload } = await jwtVerify(token, key, {
          issuer,
          audience,
          algorithms: ['HS256'],
          currentDate: now,
        })
        if (payload.type !== 'access' || typeof payload.sub !== 'string') return undefined
        return {
          userId: payload.sub,
          sessionId: payload.sid as string,
          context: payload.ctx as Context,
          authEpoch: payload.aep as number,
          mfaEpoch: payload.mep as number,
          mfa: payload.mfa === true,
          expiresAt: (payload.exp ?? 0) * 1000,
        }
      } catch {
        return undefined
      }
    },
  }
}

export const tokenHash = (token: string): string => hash('sha256', token, 'hex')

export const newToken = (): string => randomBytes(32).toString('base64url')

/** `<session id>.<random>`: the id finds the family even when the token was spent long ago. */
export const refreshToken = (sessionId: string): string => `${sessionId}.${newToken()}`

export const sessionOfRefreshToken = (token: string): string => token.slice(0, token.indexOf('.'))
