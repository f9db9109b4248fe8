/** A person's identity as asserted by an identity provider, whatever the protocol. */
export type AssertedIdentity = {
  /** The provider's permanent identifier of the person: `sub`, or the NameID. */
  subject: string
  email: string | undefined
  /** False only when the provider states that it is not verified. */
  emailVerified: boolean
  name: string | undefined
  groups: string[]
  /** The provider states that it required a second factor. */
  mfa: boolean
  /** All claims, stored with the link. */
  profile: Record<string, unknown>
  tokens?: { accessToken: string | null; refreshToken: string | null; expiresInSeconds: number | null }
}

/** Whether a claim means false, in any form that providers use: JSON or text, in either case, or an xs:boolean. */
export const isFalse = (claim: unknown): boolean =>
  Array.isArray(claim) ? claim.some(isFalse) : ['false', '0'].includes(String(claim).trim().toLowerCase())
