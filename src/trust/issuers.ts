import type { Outbound } from '../core/outbound.ts'
import { type Clock, type Instant, secondsBetween } from '../core/time.ts'
import { DiscoveryFailure, discoverKeys } from '../sso/discovery.ts'
import { TokenFailure, TokenVerifier } from '../sso/token-verifier.ts'
import type { Storage } from '../storage/open.ts'
import type { Claims } from './rules.ts'
import { findIssuer, saveIssuer } from './store.ts'

export type IssuerLogger = { warn(about: object, message: string): void }

/** How long the address of an issuer's keys is cached, and how soon discovery is retried after a failure. */
const cacheSeconds = 24 * 3600
const backoffSeconds = 60
/** Most failed issuers that are remembered. */
const maxFailures = 500

/**
 * The issuers of tokens. The address of an issuer's keys is the same for every tenant that trusts it, since the
 * issuer itself publishes it.
 */
export class IssuerRegistry {
  readonly #storage: Storage
  readonly #outbound: Outbound
  readonly #log: IssuerLogger
  readonly #keys: TokenVerifier
  readonly #inFlight = new Map<string, Promise<string>>()
  /** Issuers not retried for a while: the callers who present their tokens are unauthenticated. */
  readonly #failed = new Map<string, { at: Instant; failure: DiscoveryFailure }>()

  constructor(on: { storage: Storage; outbound: Outbound; clock: Clock; log: IssuerLogger }) {
    this.#storage = on.storage
    this.#outbound = on.outbound
    this.#log = on.log
    this.#keys = new TokenVerifier(on)
  }

  /** The claims of an issuer's token, after its signature was verified. @throws TokenFailure */
  async claimsOf(token: string, issuer: string, now: Instant): Promise<Claims> {
    try {
      return await this.#keys.verify(token, await this.#jwksUrlOf(issuer, now))
    } catch (error) {
      if (error instanceof DiscoveryFailure) throw new TokenFailure('keys_unavailable', error.message)
      throw error
    }
  }

  /** Discovers the address of an issuer's keys and stores it. @throws DiscoveryFailure */
  async discover(issuer: string, now: Instant): Promise<string> {
    const asking = this.#inFlight.get(issuer) ?? this.#fetch(issuer, now)
    this.#inFlight.set(issuer, asking)
    try {
      return await asking
    } finally {
      this.#inFlight.delete(issuer)
    }
  }

  /** Repeats discovery after a day; while the issuer does not respond, the stored address stays valid. */
  async #jwksUrlOf(issuer: string, now: Instant): Promise<string> {
    const known = await findIssuer(this.#storage.read, issuer)
    if (known && isWithin(cacheSeconds, known.discoveredAt, now)) return known.jwksUrl
    const silent = this.#failed.get(issuer)
    try {
      if (silent && isWithin(backoffSeconds, silent.at, now)) throw silent.failure
      return await this.discover(issuer, now)
    } catch (error) {
      if (!(error instanceof DiscoveryFailure) || !known) throw error
      return known.jwksUrl
    }
  }

  async #fetch(issuer: string, now: Instant): Promise<string> {
    try {
      const jwksUrl = await discoverKeys(this.#outbound, issuer)
      await this.#storage.write((tx) => saveIssuer(tx, issuer, { jwksUrl, discoveredAt: now }))
      this.#failed.delete(issuer)
      return jwksUrl
    } catch (error) {
      if (!(error instanceof DiscoveryFailure)) throw error
      this.#log.warn({ issuer, reason: error.message }, 'OIDC discovery failed')
      if (this.#failed.size >= maxFailures) this.#failed.clear()
      this.#failed.set(issuer, { at: now, failure: error })
      throw error
    }
  }
}

function isWithin(seconds: number, since: Instant, now: Instant): boolean {
  const age = secondsBetween(since, now)
  return age >= 0 && age < seconds
}
