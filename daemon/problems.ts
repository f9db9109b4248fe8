import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { type ErrorBody, type ErrorCode, errors, Problem } from '../src/core/errors.ts'
import { isOutage } from '../src/storage/dialect.ts'

/** What Fastify itself refuses, in the product's own codes. */
const ofFramework: Readonly<Record<string, ErrorCode>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'payload_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_INVALID_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'invalid_request',
  FST_ERR_MAX_PARAM_LENGTH: 'not_found',
}

/** Anything thrown as a Problem; a bug becomes `internal` and tells nothing of the inside. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error
  const { code, statusCode } = error as Partial<FastifyError>
  const known = code === undefined ? undefined : ofFramework[code]
  if (known) return new Problem(known)
  if (error instanceof SyntaxError && statusCode === 400) return new Problem('malformed_json')
  if (isOutage(error)) return new Problem('unavailable')
  return new Problem(
    statusCode !== undefined && statusCode >= 400 && statusCode < 500 ? 'invalid_request' : 'internal',
  )
}

export function sendProblem(request: FastifyRequest, reply: FastifyReply, error: unknown): FastifyReply {
  const problem = problemOf(error)
  if (problem.status >= 500) request.log.error({ err: error }, 'unhandled error')
  const { details, retryAfter, enrollUrl } = problem.extras
  const body: ErrorBody = {
    error: problem.message,
    code: problem.code,
    requestId: request.id,
    ...(details !== undefined && { details }),
    ...(retryAfter !== undefined && { retryAfter }),
    ...(enrollUrl !== undefined && { enrollUrl }),
  }
  if (retryAfter !== undefined) reply.header('retry-after', retryAfter)
  return reply
    .code(errors[problem.code].status)
    .type('application/json; charset=utf-8')
    .serializer(JSON.stringify)
    .send(body)
}
