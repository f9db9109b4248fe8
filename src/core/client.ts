import { setTimeout as sleep } from 'node:timers/promises'
import type { Endpoint, InputOf, ReplyOf } from './endpoint.ts'
import { parseJson } from './json.ts'
import {
  ApiError,
  errorOf,
  fetchTransport,
  NetworkError,
  TimeoutError,
  type Transport,
  type TransportResponse,
  textOf,
} from './transport.ts'

export * from './transport.ts'

export type Credentials = {
  /** Headers that authenticate the caller. */
  headers(): Promise<Record<string, string>>
  /** Called after a 401: true when the request should be sent again with new headers. */
  renew?(failure: ApiError): Promise<boolean>
}

/** One request and its outcome, for a log that must not contain secrets: no headers, no bodies. */
export type HttpExchange = {
  method: string
  url: string
  attempt: number
  ms: number
  status?: number
  failure?: string
}

export type ClientOptions = {
  /** Base address of the service, without /api/v1. */
  url: string
  transport?: Transport
  credentials?: Credentials
  headers?: Record<string, string>
  /**
   * Time limit of a call in milliseconds, retries included, waits for a rate limit not; for a stream, the limit between two
   * chunks.
   */
  timeout?: number
  /** Waits where the service answers 429. What is refused so has done nothing: any request can be sent again. */
  rateLimit?: {
    /** Most milliseconds that a call waits in all. */
    patience: number
    onWait(seconds: number): void
  }
  signal?: AbortSignal
  /** Number of retries after a failure that is safe to repeat. */
  retries?: number
  onExchange?: (exchange: HttpExchange) => void
}

/** The inputs of a request, before they become the path, the query string and the body. */
export type RawInput = {
  params?: Record<string, unknown>
  query?: Record<string, unknown>
  body?: unknown
}

type RawReply = { status: number; headers: Record<string, string | undefined>; text: string }

export type Client = {
  readonly url: string
  /** Calls an endpoint of the contract with the shapes it declares. */
  call<E extends Endpoint>(
    entry: E,
    ...input: Record<never, never> extends InputOf<E> ? [input?: InputOf<E>] : [input: InputOf<E>]
  ): Promise<ReplyOf<E>>
  /** The same for an entry that is only known at run time. */
  request(entry: Endpoint, input?: RawInput): Promise<unknown>
  /** The bytes of an entry that streams; `begun` receives the headers first. */
  stream(
    entry: Endpoint,
    input?: RawInput,
    begun?: (headers: RawReply['headers']) => void,
  ): AsyncIterable<Buffer>
  /** A request outside the contract. `path` is below /api/v1. Fails on statuses from 400. */
  raw(
    method: string,
    path: string,
    options?: { body?: string; headers?: Record<string, string> },
  ): Promise<RawReply>
}

const basePath = '/api/v1'

/** `/orgs/sites/:id` with its parameters in place, and the query string. */
export function pathOf(entry: Pick<Endpoint, 'path'>, input: RawInput = {}): string {
  const path = entry.path.replace(/:(\w+)/g, (_, name: string) => {
    const value = String(input.params?.[name] ?? '')
    if (value === '' || value === '.' || value === '..') throw new RangeError(`${name} cannot be "${value}"`)
    return encodeURIComponent(value)
  })
  const query = new URLSearchParams()
  for (const [key, value] of Object.entries(input.query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) query.append(key, String(one))
    }
  }
  return query.size > 0 ? `${path}?${query}` : path
}

export function createClient(options: ClientOptions): Client {
  const url = options.url.replace(/\/+$/, '')
  const { transport = fetchTransport, timeout = 30_000, retries = 2 } = options

  type Draft = {
    method: string
    path: string
    body?: string
    headers?: Record<string, string>
    accept?: string
  }

  /** A reply whose headers have arrived. `broken` maps a failure to read the body to the error to throw. */
  type Flow = {
    reply: TransportResponse
    end: () => void
    alive: () => void
    broken: (error: unknown) => unknown
  }

  /** Sends until a reply below 400 arrives or a failure that a retry would not cure. */
  async function exchange(draft: Draft): Promise<Flow> {
    const clock = new AbortController()
    const stop = () => clock.abort(new TimeoutError(url, timeout))
    let timer = setTimeout(stop, timeout)
    const alive = () => {
      clearTimeout(timer)
      timer = setTimeout(stop, timeout)
    }
    const end = () => clearTimeout(timer)
    const broken = (error: unknown) =>
      signal.aborted ? signal.reason : new NetworkError(url, 'the answer was cut off', { cause: error })
    const signal = options.signal ? AbortSignal.any([options.signal, clock.signal]) : clock.signal
    const safe = draft.method === 'GET' || draft.headers?.['idempotency-key'] !== undefined
    let waited = 0
    let refusals = 0
    let renewed = false
    try {
      for (let attempt = 1; ; attempt += 1) {
        const reply = await send(draft, attempt, signal)
        if (!(reply instanceof Error)) return { reply, end, alive, broken }
        const failure = reply
        if (failure instanceof ApiError && failure.status === 401 && !renewed) {
          renewed = true
          if (await options.credentials?.renew?.(failure)) continue
        }
        const { rateLimit } = options
        if (rateLimit && failure instanceof ApiError && failure.status === 429) {
          const { retryAfter } = failure
          const pause = pauseBefore(Math.min(attempt, 4), failure, rateLimit.patience - waited)
          if (retryAfter === undefined || pause === undefined) throw failure
          rateLimit.onWait(retryAfter)
          end()
          await sleep(pause, undefined, { signal })
          waited += pause
          refusals += 1
          alive()
          continue
        }
        const tries = attempt - refusals
        const pause = safe && tries <= retries ? pauseBefore(tries, failure) : undefined
        if (pause === undefined) throw failure
        await sleep(pause, undefined, { signal })
      }
    } catch (error) {
      end()
      throw signal.aborted ? signal.reason : error
    }
  }

  /** Sends once. Returns the failure that another try may cure; throws any other. */
  async function send(
    draft: Draft,
    attempt: number,
    signal: AbortSignal,
  ): Promise<TransportResponse | ApiError | NetworkError> {
    const { method, path, body } = draft
    const address = url + basePath + path
    const headers = {
      accept: draft.accept ?? 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...options.headers,
      ...(await options.credentials?.headers()),
      ...draft.headers,
    }
    const started = performance.now()
    const note = (result: { status?: number; failure?: string }) =>
      options.onExchange?.({
        method,
        url: address,
        attempt,
        ms: Math.round(performance.now() - started),
        ...result,
      })
    try {
      const reply = await transport({
        method,
        url: address,
        headers,
        signal,
        ...(body !== undefined && { body }),
      })
      note({ status: reply.status })
      if (reply.status < 400) return reply
      const failure = errorOf(reply, await textOf(reply.body))
      failure.request = `${method} ${path.replace(/\?.*/s, '')}`
      return failure
    } catch (error) {
      if (signal.aborted) throw signal.reason
      if (!(error instanceof NetworkError)) throw error
      note({ failure: error.message })
      return error
    }
  }

  async function unary(draft: Draft): Promise<RawReply> {
    const { reply, end, broken } = await exchange(draft)
    try {
      return { status: reply.status, headers: reply.headers, text: await textOf(reply.body) }
    } catch (error) {
      throw broken(error)
    } finally {
      end()
    }
  }

  const draftOf = (entry: Endpoint, input?: RawInput): Draft => ({
    method: entry.method,
    path: pathOf(entry, input),
    ...(input?.body !== undefined && { body: JSON.stringify(input.body) }),
    ...(entry.idempotencyKey === 'honored' && {
      headers: { 'idempotency-key': process.getBuiltinModule('node:crypto').randomUUID() },
    }),
  })

  async function request(entry: Endpoint, input?: RawInput): Promise<unknown> {
    const reply = await unary(draftOf(entry, input))
    const { location } = reply.headers
    if (reply.status >= 300 && location)
      throw new NetworkError(url, `it redirects to ${location}; use that address`)
    const value = parseJson(reply.text)
    if (value !== undefined) return value
    const type = reply.headers['content-type'] ?? 'no content type'
    throw new NetworkError(url, `the answer is not from this service (${reply.status}, ${type})`)
  }

  async function* stream(
    entry: Endpoint,
    input?: RawInput,
    begun?: (headers: RawReply['headers']) => void,
  ): AsyncGenerator<Buffer> {
    const { reply, end, alive, broken } = await exchange({
      ...draftOf(entry, input),
      accept: entry.streams?.join(', ') ?? '*/*',
    })
    try {
      begun?.(reply.headers)
      for await (const chunk of reply.body) {
        alive()
        yield Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk)
      }
    } catch (error) {
      throw broken(error)
    } finally {
      end()
    }
  }

  return {
    url,
    request,
    stream,
    call: (entry, ...rest) => request(entry, rest[0] as RawInput | undefined) as never,
    raw: (method, path, extra = {}) => unary({ method, path, ...extra }),
  }
}

const longestPause = 10_000

/** Milliseconds to wait before another try, or undefined when another try would not help. */
function pauseBefore(
  attempt: number,
  failure: ApiError | NetworkError,
  longest = longestPause,
): number | undefined {
  const jittered = 100 * 2 ** attempt * (0.5 + Math.random())
  if (failure instanceof NetworkError) return jittered
  // A device that cannot do it has answered: a retry would give the same answer.
  if (failure.code === 'device_failed') return undefined
  const isPassing = [502, 503, 429].includes(failure.status) || failure.code === 'idempotency_in_progress'
  if (!isPassing) return undefined
  if (failure.retryAfter === undefined) return failure.status === 429 ? undefined : jittered
  const asked = failure.retryAfter * 1000
  return asked > longest ? undefined : asked + jittered
}
