import { hash } from 'node:crypto'
import { exportJWK, generateKeyPair, SignJWT, UnsecuredJWT } from 'jose'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Outbound } from '../../../src/core/outbound.ts'
import type { FailureCode } from '../../../src/sso/failures.ts'
import { type ExpectedToken, verifyIdToken } from '../../../src/sso/oidc/id-token.ts'
import { TokenVerifier } from '../../../src/sso/token-verifier.ts'

const now = '2026-03-01T12:00:00.000Z'
const at = Date.parse(now) / 1000
const accessToken = 'an access token'

const expected: ExpectedToken = {
  issuer: 'https://idp.example.com',
  clientId: 'svc',
  jwksUrl: 'https://idp.example.com/keys',
  nonce: 'a nonce',
  accessToken,
  now,
}
const usual = { iss: expected.issuer, aud: 'svc', sub: 'dora', nonce: 'a nonce', iat: at, exp: at + 300 }

const algorithms = ['RS256', 'RS384', 'RS512', 'PS256', 'ES256', 'ES384', 'ES512', 'EdDSA'] as const
type Algorithm = (typeof algorithms)[number]

const pairs = new Map<string, Awaited<ReturnType<typeof generateKeyPair>>>()
let published = ''
beforeAll(async () => {
  for (const alg of algorithms) pairs.set(alg, await generateKeyPair(alg, { extractable: true }))
  const keys = [...pairs].map(async ([alg, { publicKey }]) => ({
    ...(await exportJWK(publicKey)),
    kid: alg,
    alg,
  }))
  published = JSON.stringify({ keys: await Promise.all(keys) })
})

const outbound: Outbound = {
  send: async () => ({
    status: 200,
    headers: {},
    body: Buffer.from(published),
    isWhole: true,
    milliseconds: 1,
  }),
  locateHost: async () => ({ network: 'public' }),
  close: async () => {},
}

const signed = (claims: object, alg: Algorithm = 'ES256', header: object = {}): Promise<string> =>
  new SignJWT({ ...usual, ...claims })
    .setProtectedHeader({ alg, kid: alg, ...header })
    .sign(pairs.get(alg)!.privateKey)

const read = (token: string, change: Partial<ExpectedToken> = {}) =>
  verifyIdToken(token, new TokenVerifier({ outbound, clock: () => now }), { ...expected, ...change })

const half = (alg: string, digest: string): string => {
  const whole = hash(digest, accessToken, 'buffer')
  return whole.subarray(0, whole.length / 2).toString(alg === 'hex' ? 'hex' : 'base64url')
}

type Refused = [what: string, token: () => Promise<string>, code: FailureCode, detail: string]

const saying = (claims: object) => () => signed(claims)
/** The payload of a token under the signature of another. */
const spliced = async (): Promise<string> => {
  const [[header, , signature], [, payload]] = [
    (await signed({})).split('.'),
    (await signed({ sub: 'admin' })).split('.'),
  ]
  return [header, payload, signature].join('.')
}
const shared = (secret: string, alg = 'HS256') =>
  new SignJWT(usual).setProtectedHeader({ alg }).sign(new TextEncoder().encode(secret))

const refused: Refused[] = [
  [
    'another issuer',
    saying({ iss: 'https://other.example.com' }),
    'sso_issuer_mismatch',
    'other.example.com',
  ],
  ['an issuer with a slash', saying({ iss: `${expected.issuer}/` }), 'sso_issuer_mismatch', 'example.com/"'],
  ['an issuer in capitals', saying({ iss: 'https://IDP.example.com' }), 'sso_issuer_mismatch', 'IDP'],
  ['no issuer', saying({ iss: undefined }), 'sso_issuer_mismatch', 'nothing'],
  ['a list of issuers', saying({ iss: [expected.issuer] }), 'sso_issuer_mismatch', '['],
  ['another audience', saying({ aud: 'other' }), 'sso_audience_mismatch', 'for "other"'],
  ['no audience', saying({ aud: undefined }), 'sso_audience_mismatch', 'for nothing'],
  ['no audience at all', saying({ aud: [] }), 'sso_audience_mismatch', 'for []'],
  ['a part of the client id', saying({ aud: 'svc-other' }), 'sso_audience_mismatch', 'svc-other'],
  [
    'several audiences, given to nobody',
    saying({ aud: ['svc', 'x'] }),
    'sso_audience_mismatch',
    'given to nothing',
  ],
  ['given to another', saying({ azp: 'other' }), 'sso_audience_mismatch', 'given to "other"'],
  ['given to a list', saying({ azp: ['svc'] }), 'sso_audience_mismatch', 'given to ["svc"]'],
  ['expired', saying({ exp: at - 60 }), 'sso_token_expired', '2026-03-01T11:59:00.000Z; here it is'],
  ['no expiry', saying({ exp: undefined }), 'sso_token_expired', 'at no time'],
  ['an expiry that is a text', saying({ exp: `${at + 300}` }), 'sso_token_expired', 'at no time'],
  ['an expiry that is no instant', saying({ exp: -1e300 }), 'sso_token_expired', 'at no time'],
  ['issued in the future', saying({ iat: at + 61 }), 'sso_clock_ahead', '2026-03-01T12:01:01.000Z'],
  ['issued at a text', saying({ iat: 'now' }), 'sso_clock_ahead', 'of no time'],
  ['not to be used yet', saying({ nbf: at + 61 }), 'sso_clock_ahead', '2026-03-01T12:01:01.000Z'],
  ['another nonce', saying({ nonce: 'b' }), 'sso_nonce_mismatch', 'another one'],
  ['no nonce', saying({ nonce: undefined }), 'sso_nonce_mismatch', 'it has none'],
  ['a nonce that is none', saying({ nonce: null }), 'sso_nonce_mismatch', 'another one'],
  ['another access token', saying({ at_hash: half('', 'sha512') }), 'sso_access_token_mismatch', 'at_hash'],
  [
    'a hash in hexadecimal',
    saying({ at_hash: half('hex', 'sha256') }),
    'sso_access_token_mismatch',
    'at_hash',
  ],
  ['a hash that is none', saying({ at_hash: null }), 'sso_access_token_mismatch', 'at_hash'],
  ['a signature of something else', spliced, 'sso_signature_invalid', 'signature'],
  ['a key that is not published', () => signed({}, 'ES256', { kid: 'x' }), 'sso_key_unknown', 'key'],
  ['a key of another algorithm', () => signed({}, 'PS256', { kid: 'RS256' }), 'sso_key_unknown', 'key'],
  ['no signature', async () => new UnsecuredJWT(usual).encode(), 'sso_algorithm_refused', '"none"'],
  ['a shared secret', () => shared('hush'.repeat(10)), 'sso_algorithm_refused', '"HS256"'],
  ['the public key as a secret', () => shared(published), 'sso_algorithm_refused', '"HS256"'],
  ['a larger shared secret', () => shared('hush'.repeat(20), 'HS512'), 'sso_algorithm_refused', '"HS512"'],
  ['an opaque token', async () => 'opaque', 'sso_token_malformed', ''],
  ['an encrypted token', async () => 'a.b.c.d.e', 'sso_token_malformed', ''],
  ['nothing', async () => '..', 'sso_token_malformed', ''],
]

describe('an ID token', () => {
  it.each(algorithms)('signed with %s is accepted together with its access token', async (alg) => {
    const digest = alg === 'EdDSA' ? 'sha512' : `sha${alg.slice(2)}`
    const token = await signed({ at_hash: half('', digest) }, alg)
    expect(await read(token)).toMatchObject({ sub: 'dora' })
    await expect(read(token, { accessToken: 'another' })).rejects.toMatchObject({
      code: 'sso_access_token_mismatch',
    })
  })

  it.each([
    ['for several, given to us', { aud: ['other', 'svc'], azp: 'svc' }],
    ['in a list of one', { aud: ['svc'] }],
    ['that has expired within the minute that clocks may differ by', { exp: at - 59 }],
    ['from less than a minute ahead', { iat: at + 60, nbf: at + 60 }],
    ['without the instant it was issued at', { iat: undefined }],
    ['without a hash of the access token', { at_hash: undefined }],
  ])('%s is accepted', async (_what, claims) => {
    expect(await read(await signed(claims))).toMatchObject({ sub: 'dora' })
  })

  it.each(refused)('is refused with %s', async (_what, token, code, detail) => {
    await expect(read(await token())).rejects.toMatchObject({
      name: 'SsoFailure',
      code,
      detail: expect.stringContaining(detail),
    })
  })

  it('has its signature verified first, before any claim is trusted', async () => {
    const { privateKey } = await generateKeyPair('ES256')
    const token = new SignJWT({ iss: 'x', aud: 'y' }).setProtectedHeader({ alg: 'ES256', kid: 'ES256' })
    await expect(read(await token.sign(privateKey))).rejects.toMatchObject({ code: 'sso_signature_invalid' })
  })

  it('is quoted in errors with at most one line', async () => {
    const token = await signed({ aud: 'x'.repeat(10_000) })
    const failure = await read(token).catch((error: { detail: string }) => error)
    expect((failure as { detail: string }).detail.length).toBeLessThan(600)
  })
})
