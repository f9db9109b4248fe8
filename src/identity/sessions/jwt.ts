import { errors, type JWTPayload, jwtVerify, SignJWT } from 'jose'
import { newId } from '../../core/new-id.ts'

const issuer = 'service'

/** Claims and subject of a token of this service. `expiresAt` is in milliseconds since 1970. */
export type VerifiedJwt = { subject: string; claims: JWTPayload; expiresAt: number }

/** The key that signs tokens, and another key whose tokens are accepted too: the previous or the next one. */
export type JwtSecrets = readonly [current: string, other?: string | undefined]

/**
 * Tokens that only this service issues: JWT, HS256. Each kind has its own audience or `type`, so that no token
 * passes as another kind; each token has an id, so that no two are the same.
 */
export function createJwtSigner(
  secrets: JwtSecrets,
  kind: { audience: string; type: string; seconds: number },
) {
  const keys = secrets.flatMap((secret) => (secret ? [new TextEncoder().encode(secret)] : []))
  const { audience, type, seconds } = kind
  return {
    sign: (subject: string, claims: JWTPayload, now: Date): Promise<string> =>
      new SignJWT({ ...claims, type })
        .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
        .setJti(newId())
        .setSubject(subject)
        .setIssuer(issuer)
        .setAudience(audience)
        .setIssuedAt(now)
        .setExpirationTime(Math.floor(now.getTime() / 1000) + seconds)
        .sign(keys[0]!),
    /** undefined for anything but an unexpired token of this kind. */
    async verify(token: string, now: Date): Promise<VerifiedJwt | undefined> {
      const options = { issuer, audience, algorithms: ['HS256'], currentDate: now }
      for (const key of keys) {
        try {
          const { payload: claims } = await jwtVerify(token, key, options)
          if (claims.type !== type || typeof claims.sub !== 'string') return undefined
          return { subject: claims.sub, claims, expiresAt: (claims.exp ?? 0) * 1000 }
        } catch (error) {
          if (!(error instanceof errors.JOSEError)) throw error
          // Only a wrong signature can mean that it is of the other key.
          if (!(error instanceof errors.JWSSignatureVerificationFailed)) return undefined
        }
      }
      return undefined
    },
  }
}
