import { createHmac, timingSafeEqual } from 'node:crypto'

/**
 * The two signatures of a delivery: the native one, and that of Standard Webhooks 1.0.0. The signature covers
 * the body as the bytes sent.
 */

const standardPrefix = 'whsec_'
const base64 = /^whsec_(?=.)(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/**
 * Whether Standard Webhooks can read the secret: text after `whsec_` must be base64. Any other secret is used
 * verbatim.
 */
export const isReadableSecret = (secret: string): boolean =>
  !secret.startsWith(standardPrefix) || base64.test(secret)

export const newWebhookSecret = (random: Buffer): string => standardPrefix + random.toString('base64')

const standardKey = (secret: string): Buffer =>
  secret.startsWith(standardPrefix)
    ? Buffer.from(secret.slice(standardPrefix.length), 'base64')
    : Buffer.from(secret)

/** `sha256=` and hex; `timestamp` is the text of X-Service-Signature-Timestamp. */
export const nativeSignature = (secret: string, timestamp: string, body: string | Buffer): string =>
  `sha256=${createHmac('sha256', secret).update(`${timestamp}.`).update(body).digest('hex')}`

/** `v1,` and base64; `timestamp` is the text of webhook-timestamp, in seconds. */
export const standardSignature = (
  secret: string,
  id: string,
  timestamp: string,
  body: string | Buffer,
): string =>
  `v1,${createHmac('sha256', standardKey(secret)).update(`${id}.${timestamp}.`).update(body).digest('base64')}`

/** Header names are in lower case. */
export type SignatureHeaders = Readonly<Record<string, string | undefined>>

export type SignatureCheck = {
  /** `absent`: not all headers of this kind are present. */
  native: 'valid' | 'invalid' | 'absent'
  standard: 'valid' | 'invalid' | 'absent'
  /**
   * The time that the signatures cover, the older one of two, in milliseconds since 1970; undefined when there
   * is none. A time beside a signature of the other kind is not covered: anybody could have written it.
   */
  signedAt: number | undefined
}

/** Largest time of a Date. */
const latestTime = 8.64e15

/** Compares signatures in constant time. */
export function checkSignatures(
  secret: string,
  headers: SignatureHeaders,
  body: string | Buffer,
): SignatureCheck {
  const of = (name: string) => headers[name]?.trim() || undefined
  const [native, at] = [of('x-service-signature'), of('x-service-signature-timestamp')]
  const previous = of('x-service-previous-signature')
  const [standard, id, seconds] = [of('webhook-signature'), of('webhook-id'), of('webhook-timestamp')]
  const isNative =
    native !== undefined && at !== undefined
      ? verdict([native, ...(previous ? [previous] : [])], nativeSignature(secret, at, body))
      : 'absent'
  const isStandard =
    standard !== undefined && id !== undefined && seconds !== undefined
      ? verdict(standard.split(' '), standardSignature(secret, id, seconds, body))
      : 'absent'
  const signedAt = Math.min(
    ...(isNative === 'absent' ? [] : [Number(at)]),
    ...(isStandard === 'absent' ? [] : [Number(seconds) * 1000]),
  )
  return {
    native: isNative,
    standard: isStandard,
    signedAt: Math.abs(signedAt) <= latestTime ? signedAt : undefined,
  }
}

/** Valid when one of the given signatures matches: after a change of the secret two are sent for a while. */
function verdict(given: readonly string[], expected: string): 'valid' | 'invalid' {
  const right = Buffer.from(expected)
  let isValid = false
  for (const one of given) {
    const said = Buffer.from(one)
    if (said.length === right.length && timingSafeEqual(said, right)) isValid = true
  }
  return isValid ? 'valid' : 'invalid'
}
