import type { FastifyRequest } from 'fastify'
import { findAgentCaller } from '../src/agents/principal.ts'
import type { Endpoint } from '../src/core/endpoint.ts'
import { Problem } from '../src/core/errors.ts'
import { everything, only, type Scope } from '../src/core/scope.ts'
import type { Caller, UserCaller } from '../src/handler.ts'
import { findCaller } from '../src/identity/principal.ts'
import { checkAccess } from '../src/identity/rules.ts'
import type { AccessTokens, Verified } from '../src/identity/sessions/tokens.ts'
import type { Storage } from '../src/storage/open.ts'
import type { KeyActors } from './key-actor.ts'
import type { Limiter } from './limiter.ts'

export type Actors = {
  /** Who calls, once they may. @throws the refusal, unauthenticated included */
  admit(entry: Endpoint, request: FastifyRequest, now: string): Promise<Caller>
}

export function actors(
  storage: Storage,
  tokens: AccessTokens,
  limiter: Limiter,
  admitKey: KeyActors,
  mfaOn: boolean,
): Actors {
  const recall = remembered(tokens)
  return {
    async admit(entry, request, now) {
      const { access } = entry
      if (access.who === 'public' && !(access.session && request.headers.authorization))
        return { kind: 'nobody' }
      const presented = request.headers['x-api-key']
      if (access.who === 'user' && access.key) {
        // The key counts where both are sent (spec, "Dual authentication").
        if (presented !== undefined) return admitKey(access, String(presented), request, now)
        if (request.headers.authorization === undefined) {
          throw new Problem('unauthenticated', 'Missing X-API-Key header')
        }
      }
      const token = bearer(request)
      if (access.who === 'agent') {
        const { id } = request.params as { id: string }
        const caller = await findAgentCaller(storage.read, id, token, access.unknown)
        // After its token was checked: nobody else can use up its share.
        limiter.take('AGENT', id)
        return caller
      }
      const session = await recall(token, now)
      if (!session) throw new Problem('invalid_token')
      limiter.take('BEARER', session.claims.userId)
      // Whatever decides about the caller is read again as soon as anything was committed.
      const version = storage.version()
      if (!session.caller || version === undefined || session.version !== version) {
        session.caller = undefined
        session.caller = await findCaller(storage.read, session.claims)
        session.version = version
      }
      request.caller = session.caller
      if (access.who === 'user') checkAccess(access, session.caller, mfaOn)
      return session.caller
    },
  }
}

export function scopeOfCaller(caller: Caller): Scope {
  if (caller.kind === 'user' || caller.kind === 'api_key') return caller.scope
  return caller.kind === 'agent' ? only(caller.orgId) : everything
}

/** @throws unauthenticated */
export function bearer(request: { headers: { authorization?: string | undefined } }): string {
  const [scheme, token] = request.headers.authorization?.split(' ') ?? []
  if (scheme?.toLowerCase() !== 'bearer' || !token) {
    throw new Problem('unauthenticated', 'Missing or invalid authorization header')
  }
  return token
}

type Session = {
  claims: Verified
  until: number
  caller?: UserCaller | undefined
  version?: number | undefined
}

/** A signature that was checked once is not checked again for a minute. */
function remembered(tokens: AccessTokens) {
  const known = new Map<string, Session>()
  const keepMs = 60_000
  return async (token: string, now: string): Promise<Session | undefined> => {
    const at = Date.parse(now)
    const found = known.get(token)
    if (found && found.until > at) return found
    const claims = await tokens.verify(token, new Date(now))
    if (!claims) return undefined
    if (known.size >= 10_000) known.clear()
    const session = { claims, until: Math.min(at + keepMs, claims.expiresAt) }
    known.set(token, session)
    return session
  }
}
