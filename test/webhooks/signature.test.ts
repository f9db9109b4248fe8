import fc from 'fast-check'
import { Webhook } from 'standardwebhooks'
import { describe, expect, it } from 'vitest'
import {
  checkSignatures,
  isReadableSecret,
  nativeSignature,
  newWebhookSecret,
  standardSignature,
} from '../../src/core/webhook-signature.ts'
import { eventId, secret, signedHeaders, without } from './signed.ts'

const at = '1769860800000'
const seconds = '1769860800'

/** Computed with `openssl dgst -sha256 -hmac`, over the content that man/svc-webhooks.7 defines. */
const vectors = [
  {
    secret,
    id: eventId,
    body: '{"id":"0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55","type":"webhook.test","timestamp":"2026-01-31T12:00:00.000Z","orgId":"0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11","data":{"message":"Hello"}}',
    native: 'sha256=1d2ae612aa6d673643e31c7048c5f4d390dc8ded9fa9a99ebe669d6d82ad0b5e',
    standard: 'v1,yLfY3yTbkNbAcUV0X68DgDw79A6fZWWcJIBMB8IVEdo=',
  },
  {
    secret: 'geheim-ß',
    id: 'evt-1',
    body: '{"a":1}',
    native: 'sha256=83c2c4dd3e847096ca9ec28c9c1978ea6da1b9f7d6fd0679d80e55426cba1b8b',
    standard: 'v1,rVsPwEVUF6xFs6UpIaBpNziT9jBcEUy6xzRl2jS7UUs=',
  },
]

describe('the signatures of a delivery', () => {
  it.each(vectors)('equal those of openssl with $secret', ({ secret, id, body, native, standard }) => {
    expect(nativeSignature(secret, at, body)).toBe(native)
    expect(nativeSignature(secret, at, Buffer.from(body))).toBe(native)
    expect(standardSignature(secret, id, seconds, body)).toBe(standard)
    const headers = {
      'x-service-signature': native,
      'x-service-signature-timestamp': at,
      'webhook-id': id,
      'webhook-timestamp': seconds,
      'webhook-signature': standard,
    }
    expect(checkSignatures(secret, headers, body)).toEqual({
      native: 'valid',
      standard: 'valid',
      signedAt: Number(at),
    })
  })

  it('accept only a secret that Standard Webhooks can read', () => {
    expect(isReadableSecret(newWebhookSecret(Buffer.alloc(32, 7)))).toBe(true)
    expect(isReadableSecret('correct horse')).toBe(true)
    expect(isReadableSecret('whsec_')).toBe(false)
    expect(isReadableSecret('whsec_correct horse')).toBe(false)
  })

  it('are absent when one of their headers is', () => {
    const headers = signedHeaders('{}')
    const check = (part: RegExp) => checkSignatures(secret, without(headers, part), '{}')
    expect(check(/service-signature/)).toMatchObject({ native: 'absent', standard: 'valid' })
    expect(check(/signature-timestamp/)).toMatchObject({ native: 'absent', standard: 'valid' })
    expect(check(/^webhook-id/)).toMatchObject({ native: 'valid', standard: 'absent' })
    expect(check(/^webhook-timestamp/)).toMatchObject({ native: 'valid', standard: 'absent' })
    expect(check(/signature/)).toEqual({ native: 'absent', standard: 'absent', signedAt: undefined })
  })

  it('take their time only from signed content', () => {
    const old = signedHeaders('{}', { at: 1_000_000 })
    const fresh = { ...without(old, /^x-service/), 'x-service-signature-timestamp': String(Date.now()) }
    expect(checkSignatures(secret, fresh, '{}')).toMatchObject({ standard: 'valid', signedAt: 1_000_000 })
    const both = { ...signedHeaders('{}', { at: 5_000_000 }), ...without(old, /^x-service/) }
    expect(checkSignatures(secret, both, '{}').signedAt).toBe(1_000_000)
    const unreadable = { 'x-service-signature': 'sha256=', 'x-service-signature-timestamp': 'soon' }
    expect(checkSignatures(secret, unreadable, '{}')).toMatchObject({
      native: 'invalid',
      signedAt: undefined,
    })
    const never = { 'x-service-signature': 'sha256=', 'x-service-signature-timestamp': '9'.repeat(30) }
    expect(checkSignatures(secret, never, '{}').signedAt).toBeUndefined()
  })

  it('are valid for either secret while both sign', () => {
    const before = newWebhookSecret(Buffer.alloc(24, 1))
    const [old, now] = [signedHeaders('{}', { by: before }), signedHeaders('{}')]
    const headers = {
      ...now,
      'x-service-signature-timestamp': old['x-service-signature-timestamp'],
      'x-service-signature': nativeSignature(secret, old['x-service-signature-timestamp']!, '{}'),
      'x-service-previous-signature': old['x-service-signature'],
      'webhook-timestamp': old['webhook-timestamp'],
      'webhook-signature': `${standardSignature(secret, eventId, old['webhook-timestamp']!, '{}')} ${old['webhook-signature']}`,
    }
    for (const one of [secret, before]) {
      expect(checkSignatures(one, headers, '{}')).toMatchObject({ native: 'valid', standard: 'valid' })
    }
    expect(checkSignatures('another', headers, '{}')).toMatchObject({
      native: 'invalid',
      standard: 'invalid',
    })
  })
})

const anyKey = fc.uint8Array({ minLength: 1, maxLength: 70 })
const anySecret = fc.oneof(
  anyKey.map((key) => newWebhookSecret(Buffer.from(key))),
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 60 }).filter(isReadableSecret),
)

describe('the library of Standard Webhooks', () => {
  const libraryFor = (one: string) =>
    one.startsWith('whsec_') ? new Webhook(one) : new Webhook(Buffer.from(one), { format: 'raw' })

  it('makes the same signatures, and accepts ours', () => {
    const now = Math.floor(Date.now() / 1000)
    fc.assert(
      fc.property(anySecret, fc.uuid(), fc.json(), (one, id, body) => {
        const library = libraryFor(one)
        const signature = standardSignature(one, id, String(now), body)
        expect(library.sign(id, new Date(now * 1000), body)).toBe(signature)
        const headers = { 'webhook-id': id, 'webhook-timestamp': String(now), 'webhook-signature': signature }
        expect(library.verify(body, headers)).toEqual(JSON.parse(body))
        expect(checkSignatures(one, headers, Buffer.from(body)).standard).toBe('valid')
      }),
    )
  })

  it('accepts a delivery that is signed with two secrets', () => {
    const before = newWebhookSecret(Buffer.alloc(24, 1))
    const headers = signedHeaders('{}')
    const both = signedHeaders('{}', { by: before })['webhook-signature']
    headers['webhook-signature'] = `${headers['webhook-signature']} ${both}`
    expect(libraryFor(secret).verify('{}', headers)).toEqual({})
    expect(libraryFor(before).verify('{}', headers)).toEqual({})
  })
})

/** The same bytes with one of them changed. */
const altered = (bytes: Uint8Array, at: number, by: number): Buffer => {
  const copy = Buffer.from(bytes)
  copy[at % copy.length]! ^= by
  return copy
}
const anyChange = { at: fc.nat(), by: fc.integer({ min: 1, max: 255 }) }

describe('one changed byte', () => {
  const digit = (text: string, at: number, by: number): string => {
    const place = at % text.length
    return text.slice(0, place) + ((Number(text[place]) + by) % 10) + text.slice(place + 1)
  }
  const invalid = { native: 'invalid', standard: 'invalid' }

  it('in the body makes both signatures invalid', () => {
    const anyBody = fc.uint8Array({ minLength: 1, maxLength: 200 })
    fc.assert(
      fc.property(anySecret, anyBody, fc.record(anyChange), (by, body, change) => {
        const headers = signedHeaders(Buffer.from(body), { by })
        expect(checkSignatures(by, headers, Buffer.from(body))).toMatchObject({ native: 'valid' })
        const changed = altered(body, change.at, change.by)
        expect(checkSignatures(by, headers, changed)).toMatchObject(invalid)
      }),
    )
  })

  it('in the secret makes both signatures invalid', () => {
    fc.assert(
      fc.property(anyKey, fc.string(), fc.record(anyChange), (key, body, change) => {
        const by = newWebhookSecret(Buffer.from(key))
        const other = newWebhookSecret(altered(key, change.at, change.by))
        expect(checkSignatures(other, signedHeaders(body, { by }), body)).toMatchObject(invalid)
      }),
    )
  })

  it('in a timestamp or the id makes the signature over it invalid', () => {
    const anyDigit = fc.integer({ min: 1, max: 9 })
    const names = ['x-service-signature-timestamp', 'webhook-timestamp', 'webhook-id'] as const
    fc.assert(
      fc.property(fc.constantFrom(...names), fc.string(), fc.nat(), anyDigit, (name, body, at, by) => {
        const headers = signedHeaders(body, { id: '0197181837217218821' })
        headers[name] = digit(headers[name]!, at, by)
        const isNative = name.startsWith('x-')
        expect(checkSignatures(secret, headers, body)).toMatchObject({
          native: isNative ? 'invalid' : 'valid',
          standard: isNative ? 'valid' : 'invalid',
        })
      }),
    )
  })

  it('in a signature makes it invalid', () => {
    const names = ['x-service-signature', 'webhook-signature'] as const
    fc.assert(
      fc.property(fc.constantFrom(...names), fc.record(anyChange), (name, change) => {
        const headers = signedHeaders('{}')
        const changed = altered(Buffer.from(headers[name]!), change.at, change.by).toString('latin1')
        headers[name] = changed
        const { native, standard } = checkSignatures(secret, headers, '{}')
        expect(name.startsWith('x-') ? native : standard).not.toBe('valid')
      }),
    )
  })
})
