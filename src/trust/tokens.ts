import { createJwtSigner, type JwtSecrets } from '../identity/sessions/jwt.ts'

export const workloadTtlSeconds = 10 * 60

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
type VerifiedWorkload = WorkloadClaims & { expiresAt: number }

export type WorkloadTokens = {
  sign(claims: WorkloadClaims, now: Date): Promise<string>
  /** undefined for anything but a workload's token of ours that still runs. */
  verify(token: string, now: Date): Promise<VerifiedWorkload | undefined>
}

/** Tokens of workloads: JWT, HS256, 10 minutes, never renewed. */
export function workloadTokens(...secrets: JwtSecrets): WorkloadTokens {
  // An audience of its own: neither can be taken for a token of people, nor the other way round.
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
