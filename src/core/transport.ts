import type { ErrorBody } from './errors.ts'

/** What goes to the wire. `url` is complete. */
export type TransportRequest = {
  method: string
  url: string
  headers: Record<string, string>
  body?: string
  signal: AbortSignal
}

/** What came back. Header names are lower-case. */
export type TransportResponse = {
  status: number
  headers: Record<string, string | undefined>
  body: AsyncIterable<Uint8Array>
}

/** Moves one request; fails with NetworkError when no answer came. */
export type Transport = (request: TransportRequest) => Promise<TransportResponse>

/** The service answered with an error body. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string | undefined
  readonly details: unknown
  /** How many more there are than `details` lists. */
  readonly moreDetails: number
  /** Seconds. */
  readonly retryAfter: number | undefined
  readonly enrollUrl: string | undefined
  /** What was asked, such as `POST /orgs/sites`. */
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

/** No answer came. */
export class NetworkError extends Error {
  readonly url: string
  readonly proxy: string | undefined

  constructor(url: string, reason: string, options: { proxy?: string; cause?: unknown } = {}) {
    const through = options.proxy ? ` through the proxy ${options.proxy}` : ''
    super(`Cannot reach ${url}${through}: ${reason}`, { cause: options.cause })
    this.name = 'NetworkError'
    this.url = url
    this.proxy = options.proxy
  }
}

/** The answer did not come in time. */
export class TimeoutError extends Error {
  constructor(url: string, ms: number) {
    super(`No answer from ${url} within ${ms / 1000} s`)
    this.name = 'TimeoutError'
  }
}

/** Over the built-in fetch. */
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

const reasons: Record<string, string> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'the connection was reset',
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'the name could not be resolved',
  ETIMEDOUT: 'the connection timed out',
  UND_ERR_SOCKET: 'the connection was closed',
}

/** What went wrong below HTTP, in words. */
export function reasonOf(error: unknown): string {
  for (let e = error; e instanceof Error; e = e.cause) {
    const code = (e as NodeJS.ErrnoException).code
    if (code !== undefined && reasons[code]) return reasons[code]
    if (e instanceof AggregateError && e.errors.length > 0) return reasonOf(e.errors[0])
    if (e.cause === undefined) return e.message
  }
  return String(error)
}

/** The error an answer from 400 on stands for, even when something in between gave it. */
export function errorOf(reply: TransportResponse, text: string): ApiError {
  const header = Number(reply.headers['retry-after'])
  const retryAfter =
    reply.headers['retry-after'] !== undefined && Number.isFinite(header) ? { retryAfter: header } : {}
  try {
    const body = JSON.parse(text) as Partial<ErrorBody>
    if (typeof body.error === 'string')
      return new ApiError(reply.status, { ...retryAfter, ...body, error: body.error })
  } catch {
    // not our error body: something between us and the service answered
  }
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
