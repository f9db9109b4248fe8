import { compactVerify, createLocalJWKSet, decodeProtectedHeader, errors, type JSONWebKeySet } from 'jose'
import { isJsonObject } from '../core/json.ts'
import { type Outbound, OutboundFailure } from '../core/outbound.ts'
import type { Clock } from '../core/time.ts'

/** Algorithms with a public key: never a shared secret, never `none` (RFC 8725, 3.1). */
const algorithms = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA']

export type TokenFault =
  | 'keys_unavailable'
  | 'key_unknown'
  | 'signature_invalid'
  | 'algorithm_refused'
  | 'token_malformed'

/** Why the signature of a token is not accepted. */
export class TokenFailure extends Error {
  override name = 'TokenFailure'
  readonly fault: TokenFault

  constructor(fault: TokenFault, message: string) {
    super(message)
    this.fault = fault
  }
}

type CachedKeys = { keys: ReturnType<typeof createLocalJWKSet>; at: number }

const milliseconds = 5_000
const maxBody = 1 << 20
/** How long keys are cached, and how soon they are fetched again for a key that is not among them. */
const maxAgeSeconds = 600
const cooldownSeconds = 30
/** Most issuers whose keys are cached. */
const maxIssuers = 500

/** An issuer rotates its keys without notice; one without key ids replaces them in place. */
const staleFaults: readonly TokenFault[] = ['key_unknown', 'signature_invalid']

/**
 * Verifies signatures of tokens with the published keys of their issuers, which it caches. They are fetched again when they
 * are old, or when none of them fits a token.
 */
export class TokenVerifier {
  readonly #outbound: Outbound
  readonly #clock: Clock
  readonly #cached = new Map<string, CachedKeys>()
  readonly #pending = new Map<string, Promise<CachedKeys>>()

  constructor({ outbound, clock }: { outbound: Outbound; clock: Clock }) {
    this.#outbound = outbound
    this.#clock = clock
  }

  /**
   * Verifies the signature of a token and returns its claims; audience and times are not checked here.
   * @throws TokenFailure
   */
  async verify(token: string, url: string): Promise<Record<string, unknown>> {
    const known = await this.#get(url, maxAgeSeconds)
    try {
      return await verifyWith(token, known)
    } catch (error) {
      if (!(error instanceof TokenFailure) || !staleFaults.includes(error.fault)) throw error
      const newer = await this.#get(url, cooldownSeconds)
      if (newer === known) throw error
      return verifyWith(token, newer)
    }
  }

  async #get(url: string, seconds: number): Promise<CachedKeys> {
    const known = this.#cached.get(url)
    const age = known ? (Date.parse(this.#clock()) - known.at) / 1000 : Number.POSITIVE_INFINITY
    if (known && age >= 0 && age < seconds) return known
    const reading = this.#pending.get(url) ?? this.#fetch(url)
    this.#pending.set(url, reading)
    try {
      const found = await reading
      this.#cached.delete(url)
      this.#cached.set(url, found)
      for (const oldest of this.#cached.keys()) {
        if (this.#cached.size <= maxIssuers) break
        this.#cached.delete(oldest)
      }
      return found
    } finally {
      this.#pending.delete(url)
    }
  }

  async #fetch(url: string): Promise<CachedKeys> {
    const request = { method: 'GET', url, headers: { accept: 'application/json' } } as const
    try {
      const { status, body, isWhole } = await this.#outbound.send({ ...request, milliseconds, maxBody })
      if (status !== 200 || !isWhole) throw new TokenFailure('keys_unavailable', `${url} answered ${status}`)
      const keys = createLocalJWKSet(JSON.parse(body.toString('utf8')) as JSONWebKeySet)
      return { keys, at: Date.parse(this.#clock()) }
    } catch (error) {
      if (error instanceof TokenFailure) throw error
      const why = error instanceof OutboundFailure ? error.message : 'it is no set of keys'
      throw new TokenFailure('keys_unavailable', `${url}: ${why}`)
    }
  }
}

async function verifyWith(token: string, { keys }: CachedKeys): Promise<Record<string, unknown>> {
  try {
    return parsePayload((await compactVerify(token, keys, { algorithms })).payload)
  } catch (error) {
    if (error instanceof TokenFailure) throw error
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) {
      const fault = faultOf(error)
      throw new TokenFailure(
        fault,
        fault === 'algorithm_refused' ? algorithmOf(token) : (error as Error).message,
      )
    }
    // Keys without ids: one of them has to fit.
    for await (const key of error) {
      // The next one may fit; that none does is the error below.
      const found = await compactVerify(token, key, { algorithms }).catch(() => undefined)
      if (found) return parsePayload(found.payload)
    }
    throw new TokenFailure('signature_invalid', 'none of the keys verifies it')
  }
}

const algorithmOf = (token: string): string =>
  `its algorithm is ${JSON.stringify(decodeProtectedHeader(token).alg).slice(0, 100)}`

function parsePayload(payload: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload))
    if (isJsonObject(value)) return value
  } catch {
    // Not JSON: the error below reports it.
  }
  throw new TokenFailure('token_malformed', 'it holds no JSON object')
}

function faultOf(error: unknown): TokenFault {
  if (error instanceof errors.JWKSNoMatchingKey) return 'key_unknown'
  if (error instanceof errors.JWSSignatureVerificationFailed) return 'signature_invalid'
  if (error instanceof errors.JOSEAlgNotAllowed) return 'algorithm_refused'
  if (error instanceof errors.JOSENotSupported) return 'algorithm_refused'
  return 'token_malformed'
}
