import { type CryptoKey, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import { newId } from '../../src/core/new-id.ts'
import type { OutboundReply } from '../../src/core/outbound.ts'

type Key = { kid: string; alg: string; privateKey: CryptoKey; publicKey: CryptoKey }

async function newKey(alg: string): Promise<Key> {
  const { privateKey, publicKey } = await generateKeyPair(alg)
  return { kid: newId(), alg, privateKey, publicKey }
}

/** An issuer of workload tokens such as a CI system: it publishes its keys, but no sign-in endpoint. */
export class TokenIssuer {
  readonly url: string
  /** The requests it received. */
  readonly asked: string[] = []
  silent = false
  jwksUrl: string
  #key: Promise<Key> | undefined

  constructor(url: string) {
    this.url = url
    this.jwksUrl = `${url}/.well-known/jwks`
  }

  get key(): Promise<Key> {
    this.#key ??= newKey('RS256')
    return this.#key
  }

  /** Switches to another signing key, and publishes only that. */
  rotate(alg = 'RS256'): void {
    this.#key = newKey(alg)
  }

  async jwks(): Promise<{ keys: object[] }> {
    const { kid, alg, publicKey } = await this.key
    return { keys: [{ ...(await exportJWK(publicKey)), kid, alg, use: 'sig' }] }
  }

  /** The answer at a URL, or undefined if it does not listen there. */
  async answer(url: string): Promise<OutboundReply | undefined> {
    if (this.silent) return undefined
    const document = { issuer: this.url, jwks_uri: this.jwksUrl, subject_types_supported: ['public'] }
    const found =
      url === `${this.url}/.well-known/openid-configuration`
        ? document
        : url === this.jwksUrl
          ? await this.jwks()
          : undefined
    if (found === undefined) return undefined
    this.asked.push(url)
    const body = Buffer.from(JSON.stringify(found))
    return { status: 200, headers: {}, body, isWhole: true, milliseconds: 1 }
  }

  /** A token of a job; undefined omits a claim. */
  async token(claims: JWTPayload, now: string): Promise<string> {
    const { kid, alg, privateKey } = await this.key
    const at = Math.floor(Date.parse(now) / 1000)
    const usual = { iss: this.url, jti: newId(), iat: at, nbf: at, exp: at + 300 }
    const said = Object.fromEntries(
      Object.entries({ ...usual, ...claims }).filter(([, value]) => value !== undefined),
    )
    return new SignJWT(said).setProtectedHeader({ alg, kid, typ: 'JWT' }).sign(privateKey)
  }
}

/** An issuer available to all tests, independent of other fake networks. */
export const ciIssuer = new TokenIssuer('https://ci.example.com')
