import { compactVerify, createLocalJWKSet, decodeProtectedHeader, errors, type JSONWebKeySet } from 'jose'
import { type Outbound, OutboundFailure } from '../core/outbound.ts'
import type { Clock } from '../core/time.ts'

/** Signatures that a public key verifies: never a shared secret, never none (RFC 8725, 3.1). */
export const algorithms = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA'],
]

export type TokenFault =
  | 'keys_unavailable'
  | 'key_unknown'
  | 'signature_invalid'
  | 'algorithm_refused'
  | 'token_malformed'

/** Why the signature of a token does not count. */
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
const mostBody = 1 << 20
/** How long keys are believed, and how soon they are read again for one that is not among them. */
const maxAgeSeconds = 600
const cooldownSeconds = 30
/** Issuers whose keys are kept. */
const maxIssuers = 500

/** An issuer changes its keys without telling; one that gives them no names changes them in place. */
const staleFaults: readonly TokenFault[] = ['key_unknown', 'signature_invalid']

/** The published keys of issuers. They are read again when they are old, or when none of them fits a token. */
export class JwksCache {
  readonly #outbound: Outbound
  readonly #clock: Clock
  readonly #cached = new Map<string, CachedKeys>()
  readonly #pending = new Map<string, Promise<CachedKeys>>()

  constructor({ outbound, clock }: { outbound: Outbound; clock: Clock }) {
    this.#outbound = outbound
    this.#clock = clock
  }

  /**
   * What a signed token says; who it is for and how long it counts is not looked at.
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
      const { status, body, isWhole } = await this.#outbound.send({ ...request, milliseconds, mostBody })
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
    // Keys without names: one of them has to fit.
    for await (const key of error) {
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
    const said: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload))
    if (typeof said === 'object' && said !== null && !Array.isArray(said))
      return said as Record<string, unknown>
  } catch {
    // Not JSON: told below.
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
