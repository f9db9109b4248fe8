import type { ErrorBody } from './errors.ts'
import { parseJson } from './json.ts'

/** A request as sent. `url` is complete. */
export type TransportRequest = {
  method: string
  url: string
  headers: Record<string, string>
  body?: string
  signal: AbortSignal
}

/** A response as received. Header names are lower-case. */
export type TransportResponse = {
  status: number
  headers: Record<string, string | undefined>
  body: AsyncIterable<Uint8Array>
}

/** Sends one request; fails with NetworkError when no response arrived. */
export type Transport = (request: TransportRequest) => Promise<TransportResponse>

/** The service answered with an error body. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string | undefined
  readonly details: unknown
  /** Number of faults that `details` does not list. */
  readonly moreDetails: number
  /** Seconds. */
  readonly retryAfter: number | undefined
  readonly enrollUrl: string | undefined
  /** The request, such as `POST /orgs/sites`. */
  request: string | undefined

  constructor(status: number, body: Partial<ErrorBody> & { error: string }) {
    super(body.error)
    this.name = 'ApiError'
    this.status = status
    this.code = body.code ?? 'unknown'
    this.requestId = body.requestId
    this.details = body.details
    this.moreDetails = body.moreDetails ?? 0
    this.retryAfter = body.retryAfter
    this.enrollUrl = body.enrollUrl
  }
}

/** No response arrived. */
export class NetworkError extends Error {
  readonly url: string
  readonly proxy: string | undefined
  /** What to do about it, where the failure itself says that. */
  readonly hint: string | undefined

  constructor(
    url: string,
    reason: string,
    options: { proxy?: string | undefined; hint?: string | undefined; cause?: unknown } = {},
  ) {
    const through = options.proxy ? ` through the proxy ${options.proxy}` : ''
    super(`Cannot reach ${url}${through}: ${reason}`, { cause: options.cause })
    this.name = 'NetworkError'
    this.url = url
    this.proxy = options.proxy
    this.hint = options.hint
  }
}

/** The response did not arrive in time. */
export class TimeoutError extends Error {
  constructor(url: string, ms: number) {
    super(`No answer from ${url} within ${ms / 1000} s`)
    this.name = 'TimeoutError'
  }
}

/** Transport over the built-in fetch. */
export const fetchTransport: Transport = async ({ url, ...request }) => {
  try {
    const reply = await fetch(url, { ...request, redirect: 'manual' })
    return {
      status: reply.status,
      headers: Object.fromEntries(reply.headers),
      body: (reply.body ?? []) as AsyncIterable<Uint8Array>,
    }
  } catch (error) {
    throw new NetworkError(new URL(url).origin, reasonOf(error), { cause: error })
  }
}

/** What is wrong with the other side, in words that fit users and operators. */
export const peerFaults: Readonly<Record<string, string>> = {
  HPE_INVALID_CONSTANT: 'it does not speak HTTP',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is self-signed',
}

const untrusted = 'its certificate is of an authority that this machine does not trust'

const reasons: Readonly<Record<string, string>> = {
  ...peerFaults,
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'the connection was reset',
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'the name could not be resolved',
  ETIMEDOUT: 'the connection timed out',
  UND_ERR_SOCKET: 'the connection was closed',
  SELF_SIGNED_CERT_IN_CHAIN: untrusted,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
  UNABLE_TO_GET_ISSUER_CERT: untrusted,
}

/** The cause of a network failure below HTTP, as text. */
export function reasonOf(error: unknown): string {
  for (let e = error; e instanceof Error; e = e.cause) {
    const code = (e as NodeJS.ErrnoException).code
    if (code !== undefined && reasons[code]) return reasons[code]
    if (e instanceof AggregateError && e.errors.length > 0) return reasonOf(e.errors[0])
    if (e.cause === undefined) return e.message
  }
  return String(error)
}

/** The error of a response from 400 on, also when an intermediary sent it. */
export function errorOf(reply: TransportResponse, text: string): ApiError {
  const header = Number(reply.headers['retry-after'])
  const retryAfter =
    reply.headers['retry-after'] !== undefined && Number.isFinite(header) ? { retryAfter: header } : {}
  const body = parseJson(text) as Partial<ErrorBody> | null | undefined
  if (typeof body?.error === 'string')
    return new ApiError(reply.status, { ...retryAfter, ...body, error: body.error })
  // An intermediary answered: the body is not one of the service.
  const requestId = reply.headers['x-request-id']
  return new ApiError(reply.status, {
    error: `Unexpected answer: HTTP ${reply.status}`,
    ...(requestId && { requestId }),
    ...retryAfter,
  })
}

export async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = []
  for await (const chunk of body) chunks.push(chunk)
  return Buffer.concat(chunks).toString('utf8')
}
