import type { Instant } from '../../core/time.ts'

/** What a response has to be: of whom, for whom, in reply to what. */
export type ExpectedResponse = {
  /** Of the identity provider, PEM. */
  certificate: string
  /** Entity id of the identity provider. */
  issuer: string
  /** Ours: the audience. */
  entityId: string
  acsUrl: string
  requestId: string
  /** When they had to sign in again: not before. */
  signedInSince?: Instant | undefined
  now: Instant
}

/** How far the clocks of two machines may be apart. */
export const skewSeconds = 60
