import type { Instant } from '../../core/time.ts'

/** What a response is checked against: issuer, audience, and the request. */
export type ExpectedResponse = {
  /** Certificate of the identity provider, PEM. */
  certificate: string
  /** Entity id of the identity provider. */
  issuer: string
  /** Entity id of this service: the audience. */
  entityId: string
  acsUrl: string
  requestId: string
  /** Earliest accepted time of the sign-in, with ForceAuthn. */
  signedInSince?: Instant | undefined
  now: Instant
}
