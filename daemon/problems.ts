import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { type ErrorBody, type ErrorCode, type Fault, invalid, Problem } from '../src/core/errors.ts'
import { newId } from '../src/core/new-id.ts'
import { truncateStorable } from '../src/core/text.ts'
import { classifyDatabaseError, isForeignKeyViolation, isOutage } from '../src/storage/database-errors.ts'
import { problemPage, sendPage } from './pages.ts'

// An import would load all exports of node:http, including browser WebSockets: 2 MB.
const { STATUS_CODES } = process.getBuiltinModule('node:http')

/** Errors of Fastify, as codes of the product. */
const ofFramework: Readonly<Record<string, ErrorCode>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'payload_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_INVALID_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'malformed_json',
  FST_ERR_MAX_PARAM_LENGTH: 'not_found',
}

/** The faults of invalid requests that Fastify reports. */
const faultsOfFramework: Readonly<Record<string, Fault>> = {
  FST_ERR_BAD_URL: { path: 'path', message: 'is not UTF-8 in percent-encoding' },
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: {
    path: 'headers.content-length',
    message: 'is not the length of the body',
  },
}
const someFault: Fault = { path: 'request', message: 'is malformed' }

/** Bounds messages with quoted input. */
const longestMessage = 10_000

/** When to retry after a database outage. */
const retrySeconds = 5

/** Converts anything thrown to a Problem; a bug becomes `internal` and exposes no internals. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error
  const { code, statusCode } = error as Partial<FastifyError>
  const known = code === undefined ? undefined : ofFramework[code]
  if (known) return new Problem(known)
  if (error instanceof SyntaxError && statusCode === 400) return new Problem('malformed_json')
  if (isOutage(error)) return new Problem('unavailable', undefined, { retryAfter: retrySeconds })
  // Referenced records are checked before the write, and can be deleted in between.
  if (isForeignKeyViolation(error))
    return new Problem('conflict', 'What this refers to was deleted meanwhile')
  if (statusCode === undefined || statusCode < 400 || statusCode >= 500) return new Problem('internal')
  return invalid([faultsOfFramework[code ?? ''] ?? someFault])
}

/** Errors that are expected or already logged: they need no investigation. */
const expected: ReadonlySet<ErrorCode> = new Set([
  'device_failed',
  'device_timeout',
  'maintenance',
  'release_host_failed',
  'unavailable',
])

/** Whether somebody should look into it. During an outage, damage or a full body budget, every request would log the same. */
export const isUnexpected = (error: unknown, problem = problemOf(error)): boolean =>
  problem.status >= 500 && !expected.has(problem.code) && classifyDatabaseError(error) === undefined

export function sendProblem(request: FastifyRequest, reply: FastifyReply, error: unknown): FastifyReply {
  const problem = problemOf(error)
  if (isUnexpected(error, problem))
    request.log.error({ requestId: request.id, ...traceIdOf(request), err: error }, 'unhandled error')
  const { retryAfter, location = lost(request, problem) } = problem.extras
  if (location !== undefined) return reply.header('cache-control', 'no-store').redirect(location, 302)
  if (retryAfter !== undefined) reply.header('retry-after', retryAfter)
  reply.code(problem.status)
  if (meetsBrowsers(request)) {
    reply.header('vary', 'accept')
    if (prefersPage(request.headers.accept)) return sendPage(reply, problemPage(problem, request.id))
  }
  return reply
    .type('application/json; charset=utf-8')
    .serializer(JSON.stringify)
    .send(bodyOf(problem, request.id))
}

/** For log lines about a request, most of which are written outside of its asynchronous context. */
export const traceIdOf = ({ trace }: FastifyRequest): { trace_id?: string } =>
  trace === undefined ? {} : { trace_id: trace.id }

/** A browser in a redirect flow gets a page instead of JSON when the service fails. */
function lost(request: FastifyRequest, problem: Problem): string | undefined {
  return meetsBrowsers(request) && problem.code === 'internal' ? '/login?error=sso_error' : undefined
}

const meetsBrowsers = (request: FastifyRequest): boolean =>
  ((request.routeOptions?.config ?? {}) as { redirects?: boolean }).redirects === true

/** Browsers prefer HTML explicitly; programs do not, or accept JSON equally (RFC 9110, 12.5.1). */
function prefersPage(accept = ''): boolean {
  const ranges = accept.split(',').map((range) => range.split(';').map((part) => part.trim().toLowerCase()))
  const weight = (wanted: string) => {
    const range = ranges.find(([type]) => type === wanted)
    if (!range) return 0
    const q = range.find((part) => part.startsWith('q='))
    return q === undefined ? 1 : Number(q.slice(2))
  }
  return weight('text/html') > weight('application/json')
}

function bodyOf(problem: Problem, requestId: string): ErrorBody {
  const { details, moreDetails, retryAfter, enrollUrl } = problem.extras
  return {
    error: truncateStorable(problem.message, longestMessage),
    code: problem.code,
    requestId,
    ...(details !== undefined && { details }),
    ...(moreDetails !== undefined && { moreDetails }),
    ...(retryAfter !== undefined && { retryAfter }),
    ...(enrollUrl !== undefined && { enrollUrl }),
  }
}

/** Answers an unparsable request in the usual format, and closes the connection. */
export function refuseConnection(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy()
  const known = error.code === undefined ? undefined : ofNode[error.code]
  refuse(socket, known ? new Problem(known) : invalid([{ path: 'request', message: 'is not HTTP' }]), newId())
}

/** The same for a connection outside of the framework. */
export function refuse(socket: Duplex, problem: Problem, requestId: string): void {
  if (!socket.writable) return void socket.destroy()
  const body = JSON.stringify(bodyOf(problem, requestId))
  const head = [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'connection: close',
    ...(problem.extras.retryAfter === undefined ? [] : [`retry-after: ${problem.extras.retryAfter}`]),
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`)
}

const ofNode: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}
