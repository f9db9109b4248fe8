import type { FastifyRequest } from 'fastify'
import { agentAuthenticator } from '../src/agents/principal.ts'
import type { Endpoint } from '../src/core/endpoint.ts'
import { Problem } from '../src/core/errors.ts'
import { organizationScope, type Scope, systemScope } from '../src/core/scope.ts'
import { millisecondsOf } from '../src/core/time.ts'
import { isApiKey } from '../src/credentials/api-keys/rules.ts'
import type { AgentCaller, Caller, UserCaller, WorkloadCaller } from '../src/handler.ts'
import { findCaller } from '../src/identity/principal.ts'
import { checkAccess } from '../src/identity/rules.ts'
import { contextKey } from '../src/identity/sessions/store.ts'
import type { AccessTokens } from '../src/identity/sessions/tokens.ts'
import { batchReads } from '../src/storage/batching.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { findWorkload } from '../src/trust/principal.ts'
import type { WorkloadTokens } from '../src/trust/tokens.ts'
import type { KeyAuthenticator } from './key-actor.ts'
import type { Limiter } from './limiter.ts'

export type Authenticator = {
  /** The authenticated and permitted caller. @throws the refusal, also unauthenticated */
  admit(entry: Endpoint, request: FastifyRequest, now: string): Promise<Caller>
}

/** Tokens of people and of workloads, distinguished by their claims. */
export type Tokens = { access: AccessTokens; workloads: WorkloadTokens }

export function createAuthenticator(
  storage: Storage,
  tokens: () => Tokens,
  limiter: Limiter,
  admitKey: KeyAuthenticator,
  mfaOn: boolean,
): Authenticator {
  const { recall, learn } = remembered(tokens)
  // Requests of one session in the same turn of the event loop share one read: all were sent before it ends.
  const findNow = batchReads(
    async (sessions: readonly Session[]) =>
      new Map([...new Set(sessions)].map((session) => [session, session.find(storage.read)])),
  )
  const findAgent = agentAuthenticator(storage)
  return {
    async admit(entry, request, now) {
      const { access } = entry
      if (access.who === 'public' && !(access.session && request.headers.authorization))
        return { kind: 'nobody' }
      const presented = request.headers['x-api-key']
      if (access.who === 'user' && access.key) {
        // An API key takes precedence over a token.
        if (presented !== undefined) return admitKey(access, String(presented), request, now)
        if (request.headers.authorization === undefined) {
          throw new Problem('unauthenticated', 'Missing X-API-Key header')
        }
      }
      if (presented !== undefined && request.headers.authorization === undefined)
        throw new Problem('unauthenticated', 'This needs an access token: an API key cannot call it')
      const token = bearerToken(request)
      if (access.who === 'agent') {
        const { id } = request.params as { id: string }
        const caller = await findAgent(id, token, { ...access, now })
        request.caller = caller
        // Counted after the token was checked, so that nobody else can use up the agent's limit.
        limiter.take('AGENT', rateLimitKey(caller))
        if (caller.role === 'watchdog' && !access.watchdog) throw new Problem('agent_role_required')
        return caller
      }
      const session = recall(token, now) ?? (await learn(token, now))
      if (!session) throw new Problem('invalid_token', isApiKey(token) ? keyAsToken : undefined)
      limiter.take('BEARER', session.owner)
      const caller = await callerOf(session)
      request.caller = caller
      if (access.who === 'user') checkAccess(access, caller, mfaOn)
      return caller
    },
  }

  /** The caller is read again after any commit that may affect the decision. */
  async function callerOf(session: Session): Promise<UserCaller | WorkloadCaller> {
    const version = storage.version()
    if (version === undefined) return (await findNow(session))!
    if (!session.caller || session.version !== version) {
      session.caller = undefined
      session.caller = await session.find(storage.read)
      session.version = version
    }
    return session.caller
  }
}

/** Agent and watchdog have separate limits: an agent that sends too much does not block its watchdog. */
export const rateLimitKey = ({ agentId, role }: Pick<AgentCaller, 'agentId' | 'role'>): string =>
  role === 'agent' ? agentId : `${agentId} ${role}`

export function scopeOfCaller(caller: Caller): Scope {
  if (caller.kind === 'agent') return organizationScope(caller.orgId)
  return caller.kind === 'nobody' ? systemScope : caller.scope
}

const keyAsToken = 'Invalid or expired token: an API key goes into the header X-API-Key'

/** @throws unauthenticated */
export function bearerToken(request: { headers: { authorization?: string | undefined } }): string {
  const { authorization = '' } = request.headers
  const token = authorization.slice(7)
  if (token === '' || authorization.slice(0, 7).toLowerCase() !== 'bearer ') {
    throw new Problem('unauthenticated', 'Missing or invalid authorization header')
  }
  return token
}

type Session = {
  /** The key of the rate limit. */
  owner: string
  /** The caller according to the database now. @throws when access was revoked */
  find(db: Db): Promise<UserCaller | WorkloadCaller>
  until: number
  caller?: UserCaller | WorkloadCaller | undefined
  version?: number | undefined
}

/** Caches verified signatures for a minute, or until there are other secrets: one that was retired verifies nothing. */
function remembered(tokens: () => Tokens) {
  const known = new Map<string, Session>()
  const keepMs = 60_000
  let verifier = tokens()
  const current = (): Tokens => {
    if (verifier !== tokens()) known.clear()
    verifier = tokens()
    return verifier
  }
  return {
    recall(token: string, now: string): Session | undefined {
      current()
      const found = known.get(token)
      return found && found.until > millisecondsOf(now) ? found : undefined
    },
    async learn(token: string, now: string): Promise<Session | undefined> {
      const own = current()
      const verified = await verify(own, token, new Date(now))
      if (!verified) return undefined
      if (known.size >= 10_000) known.clear()
      const { expiresAt, ...session } = verified
      const kept: Session = { ...session, until: Math.min(millisecondsOf(now) + keepMs, expiresAt) }
      if (own === current()) known.set(token, kept)
      return kept
    },
  }
}

async function verify({ access, workloads }: Tokens, token: string, now: Date) {
  const person = await access.verify(token, now)
  if (person) {
    const find = (db: Db) => findCaller(db, person)
    // Counted by user and tenant: a session in one tenant does not use up the limit in another.
    return { owner: `${person.userId} ${contextKey(person.context)}`, expiresAt: person.expiresAt, find }
  }
  const workload = await workloads.verify(token, now)
  if (!workload) return undefined
  const find = (db: Db) => findWorkload(db, workload)
  return { owner: workload.policyId, expiresAt: workload.expiresAt, find }
}
