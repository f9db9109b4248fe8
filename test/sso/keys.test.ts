import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { describe, expect, it } from 'vitest'
import { type Outbound, OutboundFailure } from '../../src/core/outbound.ts'
import { TokenVerifier } from '../../src/sso/token-verifier.ts'
import { testClock } from '../harness.ts'

const url = 'https://idp.example.com/keys'
const pairs = [
  generateKeyPair('ES256', { extractable: true }),
  generateKeyPair('ES256', { extractable: true }),
]

const publicOf = async (pair: number, name: object = { kid: `${pair}` }) => ({
  ...(await exportJWK((await pairs[pair]!).publicKey)),
  ...name,
})
const signed = async (pair: number, header: object = { kid: `${pair}` }): Promise<string> =>
  new SignJWT({ by: pair })
    .setProtectedHeader({ alg: 'ES256', ...header })
    .sign((await pairs[pair]!).privateKey)

/** A key cache in front of an issuer that serves the given document. */
function issuer(first: unknown) {
  const clock = testClock()
  const self = { said: first, status: 200, isWhole: true, fails: false, asked: [] as string[] }
  const outbound: Outbound = {
    async send(request) {
      self.asked.push(request.url)
      await new Promise((resolve) => setTimeout(resolve, 5))
      if (self.fails) throw new OutboundFailure('timeout', 'it took too long')
      const body = Buffer.from(typeof self.said === 'string' ? self.said : JSON.stringify(self.said))
      return { status: self.status, headers: {}, body, isWhole: self.isWhole, milliseconds: 5 }
    },
    locateHost: async () => ({ network: 'public' }),
    close: async () => {},
  }
  const keys = new TokenVerifier({ outbound, clock })
  const read = async (token: string, at = url) =>
    keys.verify(token, at).catch((error: { fault: string; message: string }) => error)
  return Object.assign(self, { clock, keys, read })
}

const by = (pair: number) => ({ by: pair })
const fault = (name: string) => expect.objectContaining({ name: 'TokenFailure', fault: name })

describe('the published keys of an issuer', () => {
  it('are cached for ten minutes', async () => {
    const { clock, read, asked } = issuer({ keys: [await publicOf(0)] })
    const token = await signed(0)
    expect(await read(token)).toEqual(by(0))
    clock.forward(599)
    expect(await read(token)).toEqual(by(0))
    expect(asked).toHaveLength(1)
    clock.forward(1)
    expect(await read(token)).toEqual(by(0))
    expect(asked).toHaveLength(2)
  })

  it('are fetched again for an unknown key, at most every 30 seconds', async () => {
    const of = issuer({ keys: [await publicOf(0)] })
    expect(await of.read(await signed(0))).toEqual(by(0))
    of.said = { keys: [await publicOf(0), await publicOf(1)] }
    expect(await of.read(await signed(1))).toEqual(fault('key_unknown'))
    expect(of.asked).toHaveLength(1)
    of.clock.forward(30)
    expect(await of.read(await signed(1))).toEqual(by(1))
    expect(await of.read(await signed(0))).toEqual(by(0))
    expect(await of.read(await signed(1, { kid: 'none' }))).toEqual(fault('key_unknown'))
    expect(of.asked).toHaveLength(2)
  })

  it('are fetched again when a signature fails because a key was replaced in place', async () => {
    const of = issuer({ keys: [await publicOf(0, {})] })
    expect(await of.read(await signed(0, {}))).toEqual(by(0))
    of.said = { keys: [await publicOf(1, {})] }
    expect(await of.read(await signed(1, {}))).toEqual(fault('signature_invalid'))
    of.clock.forward(30)
    expect(await of.read(await signed(1, {}))).toEqual(by(1))
    expect(await of.read(await signed(0, {}))).toEqual(fault('signature_invalid'))
    expect(of.asked).toHaveLength(2)
  })

  it('are all tried when they have no key IDs', async () => {
    const { read } = issuer({ keys: [await publicOf(0, {}), await publicOf(1, {})] })
    expect(await read(await signed(1, {}))).toEqual(by(1))
    const { privateKey } = await generateKeyPair('ES256')
    const stranger = await new SignJWT({}).setProtectedHeader({ alg: 'ES256' }).sign(privateKey)
    expect(await read(stranger)).toEqual(fault('signature_invalid'))
  })

  it('are fetched once for concurrent callers, and separately per issuer', async () => {
    const { read, asked } = issuer({ keys: [await publicOf(0)] })
    const token = await signed(0)
    const all = await Promise.all(Array.from({ length: 20 }, () => read(token)))
    expect(all).toEqual(all.map(() => by(0)))
    expect(asked).toEqual([url])
    expect(await read(token, `${url}/other`)).toEqual(by(0))
    expect(asked).toEqual([url, `${url}/other`])
  })

  it('that fail to load are unavailable to all waiting callers, and fetched again next time', async () => {
    const of = issuer({ keys: [await publicOf(0)] })
    of.fails = true
    const token = await signed(0)
    const all = await Promise.all([of.read(token), of.read(token)])
    expect(all).toEqual([fault('keys_unavailable'), fault('keys_unavailable')])
    of.fails = false
    expect(await of.read(token)).toEqual(by(0))
    expect(of.asked).toHaveLength(2)
  })

  it('stay in use for ten minutes when they cannot be fetched again', async () => {
    const of = issuer({ keys: [await publicOf(0)] })
    expect(await of.read(await signed(0))).toEqual(by(0))
    of.clock.forward(60)
    of.fails = true
    expect(await of.read(await signed(1))).toEqual(fault('keys_unavailable'))
    expect(await of.read(await signed(0))).toEqual(by(0))
    // Expired keys are not used any more.
    of.clock.forward(540)
    expect(await of.read(await signed(0))).toEqual(fault('keys_unavailable'))
  })

  it.each([
    ['a web page', '<html>', {}, 'it is no set of keys'],
    ['a list', [], {}, 'it is no set of keys'],
    ['keys that are no list', { keys: {} }, {}, 'it is no set of keys'],
    ['keys that are none', { keys: ['a'] }, {}, 'it is no set of keys'],
    ['a refusal', { keys: [] }, { status: 404 }, 'answered 404'],
    ['more than 1 MiB', { keys: [] }, { isWhole: false }, 'answered 200'],
  ])('cannot be %s', async (_what, said, more, message) => {
    const of = Object.assign(issuer(said), more)
    expect(await of.read(await signed(0))).toMatchObject({
      fault: 'keys_unavailable',
      message: expect.stringContaining(message),
    })
  })

  it('do not verify a token if there are none, or if the token uses a published symmetric key', async () => {
    expect(await issuer({ keys: [] }).read(await signed(0))).toEqual(fault('key_unknown'))
    const secret = new Uint8Array(32)
    const oct = { kty: 'oct', k: Buffer.from(secret).toString('base64url'), kid: 'a', alg: 'HS256' }
    const token = await new SignJWT({}).setProtectedHeader({ alg: 'HS256', kid: 'a' }).sign(secret)
    expect(await issuer({ keys: [oct] }).read(token)).toEqual(fault('algorithm_refused'))
  })

  it('verify only a payload that is a JSON object in UTF-8', async () => {
    const { CompactSign } = await import('jose')
    const { read } = issuer({ keys: [await publicOf(0)] })
    for (const bytes of [
      Buffer.from('[]'),
      Buffer.from('null'),
      Buffer.from('x'),
      Buffer.from([0x22, 0xff, 0x22]),
    ]) {
      const { privateKey } = await pairs[0]!
      const token = await new CompactSign(bytes)
        .setProtectedHeader({ alg: 'ES256', kid: '0' })
        .sign(privateKey)
      expect(await read(token)).toEqual(fault('token_malformed'))
    }
  })

  it('of the oldest issuer are evicted when there are more than 500', async () => {
    const { read, asked } = issuer({ keys: [await publicOf(0)] })
    const token = await signed(0)
    for (let n = 0; n <= 500; n++) await read(token, `${url}/${n}`)
    await read(token, `${url}/500`)
    expect(asked).toHaveLength(501)
    await read(token, `${url}/0`)
    expect(asked).toHaveLength(502)
  })
})
