import type { FastifyReply, FastifyRequest } from 'fastify'
import { SetupError } from '../src/core/errors.ts'
import { type Env, readUrl } from './variables.ts'

/*
 * Front-ends on other origins (Fetch standard, "CORS protocol"). An origin is allowed by its exact name or
 * not at all: an allowed origin acts with the session of the browser's user.
 */

/** Allowed origins, as browsers send them. */
export type Origins = ReadonlySet<string>

/** CORS_ALLOWED_ORIGINS, else those of the dashboard. @throws SetupError */
export function readOrigins(env: Env): Origins {
  const text = env.CORS_ALLOWED_ORIGINS
  if (text === 'off') return new Set()
  if (text) return new Set(text.split(',').map((one) => originOf(one.trim())))
  const known = ['DASHBOARD_URL', 'PUBLIC_APP_URL'].map((name) => readUrl(env, name))
  return new Set(known.flatMap((url) => (url === undefined ? [] : [new URL(url).origin])))
}

function originOf(text: string): string {
  const url = URL.parse(text)
  const isWeb = url?.protocol === 'https:' || url?.protocol === 'http:'
  // URL parsers accept a star in a host name.
  const isExact = url?.href === `${url?.origin}/` && !text.endsWith('/') && !url.hostname.includes('*')
  if (url && isWeb && isExact) return url.origin
  throw new SetupError(
    `CORS_ALLOWED_ORIGINS must be exact origins such as https://app.example.com, separated by commas, or off: "${text}" is not one`,
  )
}

export const isAllowed = (
  origins: Origins,
  { headers: { origin } }: Pick<FastifyRequest, 'headers'>,
): boolean => origin !== undefined && origins.has(origin)

/** In requests it repeats the CSRF cookie; in replies it has the new value (browser.ts). */
export const csrfHeader = 'x-service-csrf'

/** Allowed request headers. Not `x-service-client`, with which a script would get the refresh token itself. */
const sent = ['authorization', 'content-type', 'idempotency-key', csrfHeader].join(', ')

/** Exposed reply headers. */
const shown = [
  'content-disposition',
  csrfHeader,
  'retry-after',
  'x-request-id',
  'x-truncated',
  'x-next-cursor',
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
].join(', ')

/** Lets an allowed origin read the reply. `Vary: Origin` tells caches that the headers depend on the origin. */
export function allowOrigin(origins: Origins, request: FastifyRequest, reply: FastifyReply): void {
  if (origins.size === 0) return
  reply.header('vary', 'origin')
  if (!isAllowed(origins, request)) return
  reply
    .header('access-control-allow-origin', request.headers.origin)
    .header('access-control-allow-credentials', 'true')
    .header('access-control-expose-headers', shown)
}

/** Whether a request is a CORS preflight. */
export const isPreflight = (origins: Origins, request: FastifyRequest): boolean =>
  request.method === 'OPTIONS' &&
  request.headers['access-control-request-method'] !== undefined &&
  isAllowed(origins, request)

export const answerPreflight = (reply: FastifyReply, methods: readonly string[]): FastifyReply =>
  reply
    .code(204)
    .removeHeader('access-control-expose-headers')
    .header('access-control-allow-methods', methods.join(', '))
    .header('access-control-allow-headers', sent)
    .header('access-control-max-age', 600)
    .send()
