/** Who somebody is, as an identity provider vouches for it, whatever the protocol. */
export type AssertedIdentity = {
  /** What the provider calls them for good: `sub`, or the NameID. */
  subject: string
  email: string | undefined
  /** False only when the provider says that it is not. */
  emailVerified: boolean
  name: string | undefined
  groups: string[]
  /** The provider says that it asked for a second factor. */
  mfa: boolean
  /** All that it says, for the record of the link. */
  profile: Record<string, unknown>
  tokens?: { accessToken: string | null; refreshToken: string | null; expiresInSeconds: number | null }
}

/** Whether a provider says no, in any of the ways that they do: as JSON or as a text, in either case, or as an xs:boolean. */
export const isFalse = (said: unknown): boolean =>
  Array.isArray(said) ? said.some(isFalse) : ['false', '0'].includes(String(said).trim().toLowerCase())
