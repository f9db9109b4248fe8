import { nativeSignature, standardSignature } from '../../src/core/webhook-signature.ts'

export const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
export const eventId = '0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55'
export const orgId = '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11'

export const eventOf = (type: string, data: object = {}, id = eventId) => ({
  id,
  type,
  timestamp: '2026-01-31T12:00:00.000Z',
  orgId,
  data,
})

/** The headers of a delivery, as man/svc-webhooks.7 lists them. */
export function signedHeaders(
  body: string | Buffer,
  { id = eventId, at = Date.now(), by = secret }: { id?: string; at?: number; by?: string } = {},
): Record<string, string> {
  const seconds = String(Math.floor(at / 1000))
  return {
    'content-type': 'application/json',
    'x-service-delivery-id': '0197c1c8-0000-7000-8000-000000000001',
    'x-service-event-id': id,
    'x-service-sequence': '7',
    'x-service-timestamp': String(at),
    'x-service-signature': nativeSignature(by, String(at), body),
    'x-service-signature-timestamp': String(at),
    'webhook-id': id,
    'webhook-timestamp': seconds,
    'webhook-signature': standardSignature(by, id, seconds, body),
  }
}

export const without = (headers: Record<string, string>, part: RegExp): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !part.test(name)))
