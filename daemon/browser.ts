import { randomBytes, timingSafeEqual } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Endpoint, Redirect } from '../src/core/endpoint.ts'
import { Problem } from '../src/core/errors.ts'
import { isStorable } from '../src/core/schema.ts'
import { refreshCookie, refreshSeconds } from '../src/identity/sessions/tokens.ts'
import { csrfHeader, isAllowed, type Origins } from './cors.ts'

/*
 * Sessions in browsers: the refresh token is in an HttpOnly cookie and never in the body of a reply. Other
 * clients send `X-Service-Client: cli` and store it themselves.
 */

const csrfCookie = 'service_csrf_token'
const refreshPath = '/api/v1/auth'

const none: Readonly<Record<string, string | undefined>> = Object.freeze({})

/** The cookies of a request. Most callers are programs without any. A value that cannot be stored text is ignored. */
export function cookiesOf({ headers, server }: FastifyRequest): typeof none {
  if (headers.cookie === undefined) return none
  const all = Object.entries(server.parseCookie(headers.cookie))
  return Object.fromEntries(all.filter(([, value]) => value !== undefined && isStorable(value)))
}

/** Sends the CSRF token in a header: a script of another origin cannot read the cookie, which another window may have renewed. */
export function sendCsrfHeader(request: FastifyRequest, reply: FastifyReply): void {
  const csrf = cookiesOf(request)[csrfCookie]
  if (csrf !== undefined && /^[0-9a-f]{64}$/.test(csrf)) reply.header(csrfHeader, csrf)
}

/** Without a refresh token in the body, the one of the cookie is used, protected against CSRF (double submit). */
export function withCookieToken(entry: Endpoint, request: FastifyRequest, origins: Origins): unknown {
  const body = request.body as { refreshToken?: string } | undefined
  if (entry.session !== 'renews' || body?.refreshToken !== undefined) return body
  const cookies = cookiesOf(request)
  const token = cookies[refreshCookie]
  if (token === undefined) return body
  const header = request.headers[csrfHeader]
  const cookie = cookies[csrfCookie]
  if (header === undefined) throw new Problem('csrf', 'Missing CSRF header')
  if (cookie === undefined) throw new Problem('csrf', 'Missing CSRF cookie')
  if (typeof header !== 'string' || !same(header, cookie)) throw new Problem('csrf', 'Invalid CSRF token')
  // The browser reports an origin that the operator allowed.
  if (isAllowed(origins, request)) return { ...body, refreshToken: token }
  const { origin, host } = request.headers
  if (origin !== undefined && !sameHost(origin, host)) throw new Problem('csrf', 'Invalid request origin')
  const site = request.headers['sec-fetch-site']
  if (site !== undefined && site !== 'same-origin' && site !== 'same-site' && site !== 'none')
    throw new Problem('csrf')
  return { ...body, refreshToken: token }
}

type Tokens = { refreshToken?: string }
type WithTokens = Tokens & { tokens?: Tokens | null }

/** Sets or clears the cookies; returns the reply for this kind of client. */
export function setSessionCookies<T>(
  entry: Endpoint,
  request: FastifyRequest,
  reply: FastifyReply,
  result: T,
  secure: boolean,
  origins: Origins,
): T {
  // For scripts of another site browsers send and accept only cookies with SameSite=None, and these only over TLS.
  const fromAfar = isAllowed(origins, request) && request.headers['sec-fetch-site'] === 'cross-site'
  const kind = { sameSite: fromAfar && secure ? 'none' : 'lax', secure } as const
  const hasCookies = request.headers['x-service-client'] !== 'cli'
  if (entry.session === 'ends') {
    if (!hasCookies) return result
    reply
      .clearCookie(refreshCookie, { ...kind, path: refreshPath })
      .clearCookie(csrfCookie, { ...kind, path: '/' })
      .removeHeader(csrfHeader)
    return result
  }
  const { tokens, refreshToken: bare } = result as WithTokens
  const token = tokens?.refreshToken ?? bare
  if (entry.session === undefined || !token || !hasCookies) return result
  const options = { ...kind, maxAge: refreshSeconds } as const
  const csrf = randomBytes(32).toString('hex')
  reply.setCookie(refreshCookie, token, { ...options, path: refreshPath, httpOnly: true })
  reply.setCookie(csrfCookie, csrf, { ...options, path: '/' })
  if (isAllowed(origins, request)) reply.header(csrfHeader, csrf)
  // If the contract has the token in the reply itself, it stays there.
  if (!tokens) return result
  const { refreshToken: _, ...shown } = tokens
  return { ...result, tokens: shown }
}

/** Redirects a browser. */
export function sendRedirect(reply: FastifyReply, { location, cookies = [] }: Redirect): FastifyReply {
  for (const { name, value, path, seconds, secure, crossSite } of cookies) {
    const sameSite = crossSite && secure ? 'none' : 'lax'
    if (value === null) reply.clearCookie(name, { path, secure, sameSite })
    else reply.setCookie(name, value, { path, secure, sameSite, httpOnly: true, maxAge: seconds })
  }
  return reply.header('cache-control', 'no-store').redirect(location, 302)
}

function same(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)]
  return left.length === right.length && timingSafeEqual(left, right)
}

const sameHost = (origin: string, host: string | undefined): boolean =>
  URL.canParse(origin) && new URL(origin).host === host
