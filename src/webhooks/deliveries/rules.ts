import { invalid } from '../../core/errors.ts'
import { failureHints, type OutboundFailure, type OutboundReply } from '../../core/outbound.ts'
import { truncateStorable } from '../../core/text.ts'
import { addSeconds, type Instant, millisecondsOf } from '../../core/time.ts'
import { nativeSignature, standardSignature } from '../../core/webhook-signature.ts'
import { defaultRetryPolicy, type RetryPolicy } from '../contract.ts'
import type { Header } from '../rules.ts'
import type { DeliveryStatus, FailureClass } from './contract.ts'

/** The content of the request. */
export type DeliveryContent = {
  id: string
  orgId: string
  seq: number
  event: string
  eventId: string
  eventAt: Instant
  /** JSON. */
  payload: string
}

/** A delivery to send: the content of the request, and the state that decides about retries. */
export type PendingDelivery = DeliveryContent & {
  webhookId: string
  attempt: number
  dueAt: Instant
  /** 1: requested by a user. */
  askedFor: number
}

const json = JSON.stringify

/** The body: the same bytes in every attempt. */
export const bodyOf = ({ eventId, event, eventAt, orgId, payload }: DeliveryContent): string =>
  `{"id":${json(eventId)},"type":${json(event)},"timestamp":${json(eventAt)},"orgId":${json(orgId)},"data":${payload}}`

/** The service's own headers come last: custom headers cannot replace them. `at` is the time of the attempt. */
export function headersOf(
  { id, seq, event, eventId }: DeliveryContent,
  body: string,
  { secrets, headers, at }: { secrets: readonly string[]; headers: readonly Header[]; at: Instant },
): Record<string, string> {
  const milliseconds = String(millisecondsOf(at))
  const seconds = String(Math.floor(millisecondsOf(at) / 1000))
  const [current, previous] = secrets
  return {
    ...Object.fromEntries(headers.map(({ key, value }) => [key, value])),
    'Content-Type': 'application/json',
    'User-Agent': 'Service-Webhooks/1.0',
    'X-Service-Delivery-Id': id,
    'X-Service-Event-Id': eventId,
    'X-Service-Event-Type': event,
    'X-Service-Sequence': String(seq),
    'X-Service-Timestamp': milliseconds,
    'webhook-id': eventId,
    'webhook-timestamp': seconds,
    ...(current !== undefined && {
      'X-Service-Signature': nativeSignature(current, milliseconds, body),
      'X-Service-Signature-Timestamp': milliseconds,
      'webhook-signature': secrets
        .map((secret) => standardSignature(secret, eventId, seconds, body))
        .join(' '),
    }),
    ...(previous !== undefined && {
      'X-Service-Previous-Signature': nativeSignature(previous, milliseconds, body),
    }),
  }
}

/** The outcome of an attempt. */
export type DeliveryOutcome = {
  status: Exclude<DeliveryStatus, 'pending'>
  attempt: number
  dueAt: Instant | null
  deliveredAt: Instant | null
  responseStatus: number | null
  responseBody: string | null
  responseTimeMs: number | null
  errorMessage: string | null
  failureClass: FailureClass | null
  /** The receiver wants no more deliveries (410): its webhook becomes failed. */
  isUnwanted: boolean
}

const nothing = { deliveredAt: null, responseStatus: null, responseBody: null, responseTimeMs: null }

/** Any 2xx is a success. Redirects are not followed. */
export function outcomeOfResponse(
  { attempt }: Pick<PendingDelivery, 'attempt'>,
  reply: OutboundReply,
  { policy, now }: { policy: RetryPolicy | null; now: Instant },
): DeliveryOutcome {
  const { status: responseStatus, milliseconds: responseTimeMs } = reply
  const text = reply.body.toString('utf8')
  const responseBody = truncateStorable(text, 1000)
  const said = { responseStatus, responseBody, responseTimeMs, attempt: attempt + 1 }
  if (responseStatus >= 200 && responseStatus < 300) {
    const fine = { errorMessage: null, failureClass: null, isUnwanted: false }
    return { status: 'delivered', ...said, ...fine, dueAt: null, deliveredAt: now }
  }
  const isUnwanted = responseStatus === 410
  const failureClass = responseStatus < 400 ? 'redirect' : responseStatus < 500 ? '4xx' : '5xx'
  const retryAfter = retryAfterOf(reply.headers['retry-after'], now)
  const wait = isUnwanted ? undefined : retryDelay(attempt + 1, retryAfter, policy)
  const begin = truncateStorable(text, 500).trim()
  const errorMessage = `HTTP ${responseStatus}${begin ? `: ${begin}` : ''}`
  return { ...nothing, ...said, ...next(wait, now), errorMessage, failureClass, isUnwanted }
}

/** A blocked address is not retried. */
export function outcomeOfFailure(
  { attempt }: Pick<PendingDelivery, 'attempt'>,
  failure: Pick<OutboundFailure, 'kind' | 'message'>,
  { policy, now }: { policy: RetryPolicy | null; now: Instant },
): DeliveryOutcome {
  const { kind: failureClass, message } = failure
  const isUnsafe = failureClass === 'blocked'
  const wait = isUnsafe ? undefined : retryDelay(attempt + 1, undefined, policy)
  const errorMessage = truncateStorable(isUnsafe ? `Unsafe webhook URL: ${message}` : message, 1000)
  const made = { attempt: attempt + 1, errorMessage, failureClass, isUnwanted: false }
  return { ...nothing, ...made, ...next(wait, now) }
}

/**
 * Milliseconds before the next attempt after `failed` failed ones, or undefined when there is none:
 * min(initialDelayMs × backoffMultiplier to the power failed − 1, maxDelayMs). A receiver may request a longer delay, up to
 * a day.
 */
function retryDelay(
  failed: number,
  retryAfterMs: number | undefined,
  policy: RetryPolicy | null,
): number | undefined {
  const { maxRetries, initialDelayMs, backoffMultiplier, maxDelayMs } = policy ?? defaultRetryPolicy
  if (failed > maxRetries) return undefined
  const usual = Math.min(initialDelayMs * backoffMultiplier ** (failed - 1), maxDelayMs)
  return Math.round(Math.max(usual, Math.min(retryAfterMs ?? 0, 86_400_000)))
}

/** For an outcome that the database did not accept: a permanent failure, without the response body. */
export const outcomeNotStored = ({
  attempt,
  responseStatus,
  responseTimeMs,
}: DeliveryOutcome): DeliveryOutcome => ({
  ...nothing,
  attempt,
  responseStatus,
  responseTimeMs,
  status: 'failed',
  dueAt: null,
  isUnwanted: false,
  failureClass: 'broken',
  errorMessage: 'The outcome of this attempt could not be stored: see the log of the service',
})

const next = (wait: number | undefined, now: Instant): Pick<DeliveryOutcome, 'status' | 'dueAt'> =>
  wait === undefined
    ? { status: 'failed', dueAt: null }
    : { status: 'retrying', dueAt: addSeconds(now, wait / 1000) }

/** In milliseconds; from seconds or a date (RFC 9110, 10.2.3). */
function retryAfterOf(header: string | undefined, now: Instant): number | undefined {
  if (header === undefined) return undefined
  if (/^\d{1,9}$/.test(header.trim())) return Number(header) * 1000
  const at = Date.parse(header)
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.parse(now))
}

export const failureHint = (failure: FailureClass | null, responseStatus: number | null): string | null => {
  if (failure === null) return null
  if (failure === 'redirect') return 'redirects are not followed: set the webhook to the target address'
  if (failure === '5xx') return 'the receiver failed while handling it: check its log'
  if (failure === '4xx')
    return refusalHints[responseStatus ?? 0] ?? 'the receiver refused it: its response may say why'
  // A newer release may store other classes.
  return failureHints[failure] ?? null
}

const refusalHints: Readonly<Record<number, string>> = {
  401: 'the receiver did not accept the signature or the credentials: does it have the same secret?',
  403: 'the receiver did not accept the signature or the credentials: does it have the same secret?',
  404: 'nothing exists at that path: is the path of the URL right?',
  405: 'the receiver accepts no POST there: is the path of the URL right?',
  410: 'the receiver wants no more deliveries, so the webhook has failed: svc webhooks resume reactivates it',
  413: 'the body is larger than the receiver accepts',
  429: 'the receiver limits the rate of deliveries',
}

/**
 * @throws invalid_request unless the delivery has failed: pending ones are sent automatically, delivered ones have
 * arrived
 */
export function checkRetriable({ status }: { status: DeliveryStatus }): void {
  const message = 'Only failed deliveries can be retried'
  if (status !== 'failed') throw invalid([{ path: 'params.deliveryId', message }], message)
}

/** Default data of a test delivery. */
export const testPayload = (webhookId: string, now: Instant) => ({
  message: 'Test webhook from svc',
  timestamp: now,
  webhookId,
})
