import { createJwtSigner, type JwtSecrets } from '../identity/sessions/jwt.ts'

export const workloadTtlSeconds = 10 * 60

/** Claims of a workload's token; whether its policy is still valid is looked up at each request. */
export type WorkloadClaims = {
  policyId: string
  /** Version of the policy when the token was issued; a changed policy has another one. */
  version: number
  orgId: string
  permissions: readonly string[]
  /** The workflow run, in words. */
  run: string
}

/** `expiresAt`: milliseconds since 1970. */
type VerifiedWorkload = WorkloadClaims & { expiresAt: number }

export type WorkloadTokens = {
  sign(claims: WorkloadClaims, now: Date): Promise<string>
  /** undefined for anything but an unexpired workload token of this service. */
  verify(token: string, now: Date): Promise<VerifiedWorkload | undefined>
}

/** Tokens of workloads: JWT, HS256, 10 minutes, never renewed. */
export function workloadTokens(...secrets: JwtSecrets): WorkloadTokens {
  // Its own audience, so that a workload token never passes as a user's token, or the reverse.
  const kind = { audience: 'service-workload', type: 'workload', seconds: workloadTtlSeconds }
  const tokens = createJwtSigner(secrets, kind)
  return {
    sign({ policyId, version: ver, orgId: org, permissions, run }, now) {
      return tokens.sign(policyId, { ver, org, permissions, run }, now)
    },
    async verify(token, now) {
      const found = await tokens.verify(token, now)
      if (!found) return undefined
      const { subject: policyId, claims, expiresAt } = found
      return {
        policyId,
        version: claims.ver as number,
        orgId: claims.org as string,
        permissions: claims.permissions as string[],
        run: claims.run as string,
        expiresAt,
      }
    },
  }
}
