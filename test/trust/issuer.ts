import { type CryptoKey, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import { newId } from '../../src/core/new-id.ts'
import type { OutboundReply } from '../../src/core/outbound.ts'

type Key = { kid: string; alg: string; privateKey: CryptoKey; publicKey: CryptoKey }

async function newKey(alg: string): Promise<Key> {
  const { privateKey, publicKey } = await generateKeyPair(alg)
  return { kid: newId(), alg, privateKey, publicKey }
}

/** An issuer of tokens for machines, as CI systems are: it publishes its keys, and no place where people sign in. */
export class TokenIssuer {
  readonly url: string
  /** What was asked of it. */
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

  /** It signs with another key from now on, and publishes that alone. */
  rotate(alg = 'RS256'): void {
    this.#key = newKey(alg)
  }

  async jwks(): Promise<{ keys: object[] }> {
    const { kid, alg, publicKey } = await this.key
    return { keys: [{ ...(await exportJWK(publicKey)), kid, alg, use: 'sig' }] }
  }

  /** What it answers at an address; undefined where it does not listen. */
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

  /** A token as it gives one to a job; undefined leaves a claim out. */
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

/** The one that every test may ask, whatever else of the outside there is. */
export const ciIssuer = new TokenIssuer('https://ci.example.com')
