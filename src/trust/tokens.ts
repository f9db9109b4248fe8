import { jwtVerify, SignJWT } from 'jose'

export const workloadSeconds = 10 * 60

const issuer = 'service'
/** Not that of the tokens of people: neither can be taken for the other. */
const audience = 'service-workload'

/** What the token of a workload says; whether its policy still stands is looked up at each request. */
export type WorkloadClaims = {
  policyId: string
  /** Of the policy when the token was given; a policy that was changed has another one. */
  version: number
  orgId: string
  permissions: readonly string[]
  /** Which run of the workflow it is, in words. */
  run: string
}

/** `expiresAt`: milliseconds since 1970. */
export type VerifiedWorkload = WorkloadClaims & { expiresAt: number }

export type WorkloadTokens = {
  sign(claims: WorkloadClaims, now: Date): Promise<string>
  /** undefined for anything but a workload's token of ours that still runs. */
  verify(token: string, now: Date): Promise<VerifiedWorkload | undefined>
}

/** Tokens of workloads: JWT, HS256, 10 minutes, never renewed. */
export function workloadTokens(secret: string): WorkloadTokens {
  const key = new TextEncoder().encode(secret)
  return {
    sign: ({ policyId, version, orgId, permissions, run }, now) =>
      new SignJWT({ ver: version, org: orgId, permissions, run, type: 'workload' })
        .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
        .setSubject(policyId)
        .setIssuer(issuer)
        .setAudience(audience)
        .setIssuedAt(now)
        .setExpirationTime(Math.floor(now.getTime() / 1000) + workloadSeconds)
        .sign(key),
    async verify(token, now) {
      try {
        const { payload } = await jwtVerify(token, key, {
          issuer,
          audience,
          algorithms: ['HS256'],
          currentDate: now,
        })
        if (payload.type !== 'workload' || typeof payload.sub !== 'string') return undefined
        return {
          policyId: payload.sub,
          version: payload.ver as number,
          orgId: payload.org as string,
          permissions: payload.permissions as string[],
          run: payload.run as string,
          expiresAt: (payload.exp ?? 0) * 1000,
        }
      } catch {
        return undefined
      }
    },
  }
}
