import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { z } from 'zod'
import { recordAudit } from '../src/audit/outbox.ts'
import type { Cipher } from '../src/core/cipher.ts'
import {
  bodyLimitOf,
  type Endpoint,
  isMutation,
  type Redirect,
  type StreamType,
} from '../src/core/endpoint.ts'
import { isShared, type ProcessLimit, type SharedLimit } from '../src/core/limits.ts'
import type { QuotaOwner } from '../src/core/quotas.ts'
import { holdsSecrets } from '../src/core/schema.ts'
import type { Clock, Instant } from '../src/core/time.ts'
import type { Quota } from '../src/credentials/api-keys/rate-limit-window.ts'
import {
  type AuditFacts,
  type Call,
  type Caller,
  type CountEvent,
  EarlyReply,
  type FileReply,
  type Handler,
  type Preparation,
  type StreamReply,
  type TwoStepHandler,
} from '../src/handler.ts'
import type { WriteGate } from '../src/storage/copy/write-gate.ts'
import { type FairShareKey, withFairShareKey } from '../src/storage/fair-queue.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { inTrace } from '../src/storage/trace.ts'
import { holdWorkload } from '../src/trust/principal.ts'
import { type Authenticator, scopeOfCaller } from './actor.ts'
import { type ClientAddress, networkOf } from './address.ts'
import type { AgentAuditBuffer } from './agent-audit-buffer.ts'
import { type Origin, refusalEntry, successEntry } from './auditing.ts'
import type { BodyBudget, BodyReservation } from './body-budget.ts'
import { cookiesOf, sendRedirect, setSessionCookies } from './browser.ts'
import { sendBytes } from './bytes.ts'
import type { ConcurrencyLimit } from './concurrency-limit.ts'
import type { Origins } from './cors.ts'
import type { FairShareKeys } from './fair-share-keys.ts'
import { userAgentOf } from './header-text.ts'
import {
  attemptOf,
  claimKey,
  findStoredReply,
  type IdempotentAttempt,
  type IdempotentResult,
  releaseKey,
  runOnce,
} from './idempotency.ts'
import { quotaHeaders } from './key-actor.ts'
import type { Limiter } from './limiter.ts'
import { problemOf } from './problems.ts'
import type { QuotaCheck } from './quotas.ts'
import { readAuditDetails, readAuditThrottle } from './read-audit.ts'
import type { ReadQueryQueue } from './read-query-queue.ts'
import { replyWriter } from './reply-writer.ts'
import { type Part, parserOf } from './request-parser.ts'
import type { SharedLimiter } from './shared-limiter.ts'
import type { RequestTrace } from './tracing/traces.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Set once the caller is known, even if the request is then refused. */
    caller?: Caller
    /** Whose share of the service the request uses; set once the caller is known. */
    fairShareKey?: FairShareKey
    /** What the handler has noted so far; also of use when it then refuses. */
    facts: AuditFacts
    client: ClientAddress
    /** The quota of the caller's API key. */
    quota?: Quota
    /** One instant for the whole request. */
    now: Instant
    /** The reservation of its body in the budget. */
    held?: BodyReservation
    /** Where traces are exported. */
    trace?: RequestTrace
  }
}

export type Pipeline = {
  storage: Storage
  gate?: WriteGate
  actors: Authenticator
  limiter: Limiter
  sharedLimiter: SharedLimiter
  agentEntries: AgentAuditBuffer
  readQueries: ReadQueryQueue
  quotas: QuotaCheck
  bodies: BodyBudget
  replies: BodyBudget
  work: ConcurrencyLimit
  fairShareKeys: FairShareKeys
  cipher: Cipher
  clock: Clock
  /** Allowed origins of other front-ends. */
  origins: Origins
  clientOf: (peer: string, headers: FastifyRequest['headers']) => ClientAddress
}

export type AnyEndpoint = Endpoint & { params: z.ZodObject; query: z.ZodObject; body: z.ZodType }
export type AnyCall = Call<AnyEndpoint>
export type AnyPreparation = Preparation<AnyEndpoint>
type CallInput = Record<Part, unknown> & {
  caller: Caller
  ip: string
  userAgent: string | null
  now: Instant
  db: Db | undefined
}

/**
 * The path of every request, in this order: limits, caller, permission (before the body is read) · parse ·
 * prepare · transaction with handler and audit entry · reply. Nothing else opens a route.
 */
export function addRoute(
  app: FastifyInstance,
  name: string,
  entry: Endpoint,
  handler: Handler<never>,
  on: Pipeline,
): void {
  const status = entry.status ?? 200
  const count = countIn(on)
  const refuse = refusalsOf(entry, on)
  const admit = admissionTo(entry, on, count, refuse)
  const outcomeOf = outcomesOf(name, entry, handler, on, count as CountEvent)
  const send = senderOf(entry, on)

  app.route({
    method: entry.bytes ? [entry.method, 'HEAD'] : entry.method,
    url: `/api/v1${entry.path}`,
    bodyLimit: bodyLimitOf(entry),
    exposeHeadRoute: false,
    config: {
      name,
      keys: entry.access.who === 'user' && entry.access.key,
      agent: entry.access.who === 'agent',
      isPrivate: isPrivate(entry),
      form: entry.form === true,
      gzip: entry.gzip === true,
      redirects: entry.redirects === true,
    },
    onRequest: (request, reply) => inTrace(request.trace, () => admit(request, reply)),
    handler: (request, reply) =>
      void inTrace(request.trace, () =>
        withFairShareKey(request.fairShareKey!, () => answer(request, reply)),
      ),
  })

  async function answer(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    try {
      const { caller } = request
      const deviceId = caller?.kind === 'agent' ? caller.deviceId : undefined
      const result = await on.work.run(() => outcomeOf(request, reply), {
        tenant: request.fairShareKey![0],
        deviceId,
      })
      if (entry.bytes) await sendBytes(request, reply.code(status), result as FileReply)
      else send(request, reply.code(status), result)
    } catch (error) {
      reply.send(await refuse(request, error).catch((other) => other))
    } finally {
      request.held?.release()
    }
  }
}

/** Before the body is read: the limits, the caller and the permission. */
function admissionTo(
  entry: Endpoint,
  on: Pipeline,
  count: Count,
  refuse: Refuse,
): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  const isChange = isMutation(entry)
  return admit

  async function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    // Before anything is done that could not be written down.
    if (isChange) on.gate?.check()
    try {
      const { limit: own, access } = entry
      const network = networkOf(request.client.ip)
      const find = () => on.actors.admit(entry, request, request.now)
      const limited = async () => {
        await count(own!, network)
        return find()
      }
      const admitted = () => on.work.run(own && access.who !== 'agent' ? limited : find)
      const caller = await withFairShareKey(['admission', network], admitted)
      request.caller = caller
      await fairShareKeyOf(request, on)
      if (own && caller.kind === 'agent') await count(own, caller.deviceId)
    } catch (error) {
      throw await refuse(request, error)
    } finally {
      if (request.quota) reply.headers(quotaHeaders(request.quota))
      // The agent, or somebody else, has a newer token: this one expires in some minutes.
      if (request.caller?.kind === 'agent' && request.caller.standing === 'previous') {
        reply.header('x-token-rotation-required', 'true')
      }
    }
  }
}

/** After the body is read: the stored reply of an earlier request with the same key, or what the handler returns. */
function outcomesOf(
  name: string,
  entry: Endpoint,
  handler: Handler<never>,
  on: Pipeline,
  limit: CountEvent,
): (request: FastifyRequest, reply: FastifyReply) => Promise<unknown> {
  const steps = stepsOf(handler as unknown as Handler<AnyEndpoint>)
  const route = `${entry.method} ${entry.path}`
  const isTelemetry = entry.audit !== undefined && 'unaudited' in entry.audit && entry.access.who === 'agent'

  const isGathered = entry.audit !== undefined && 'action' in entry.audit && entry.audit.gathered === true
  const isChange = isMutation(entry)
  const readings = readAuditThrottle(entry)
  const parse = parserOf(entry, on.origins)
  return outcomeOf

  async function outcomeOf(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    const caller = request.caller as Caller
    const { now, facts } = request
    const { params, query, body, key } = parse(request)
    // The parsed copy is used from here on; this releases the original.
    request.body = undefined
    const call = {
      params,
      query,
      body,
      ip: request.client.ip,
      isLocal: request.client.isLocal,
      isRehearsal: false,
      userAgent: userAgentOf(request.headers),
      cookies: cookiesOf(request),
      caller,
      scope: scopeOfCaller(caller),
      now,
      storage: on.storage,
      db: undefined as Db | undefined,
      note: (more: AuditFacts) =>
        void Object.assign(facts, more, { details: { ...facts.details, ...more.details } }),
      readQuery: <T>(work: (db: Db, checkTime: () => void) => Promise<T>) =>
        on.readQueries.run(
          {
            id: `${caller.kind} ${callerIdOf(caller) ?? call.ip}`,
            tenant: request.fairShareKey![0],
          },
          work,
        ),
      readQueryIfWide: <T>(work: (db: Db) => Promise<T>) =>
        call.scope.kind === 'organization' ? work(on.storage.read) : call.readQuery(work),
      quota: async (owner: QuotaOwner) => {
        const displaced = await on.quotas.check(call.db!, entry.quota!, owner, now)
        if (displaced.length > 0) call.note({ details: { displaced } })
      },
      gone: () => goneOf(reply),
      limit,
      claim: async () => {
        if (attempt) await on.storage.write((tx) => claimKey(tx, attempt, now))
      },
      outside: <T>(work: () => Promise<T>) => work(),
    }
    const said = { key, ip: call.ip, scope: call.scope, route, input: { params, query, body } }
    const attempt = attemptOf(caller, said)
    // A repetition uses up no limit, and needs no `prepare`.
    const first = attempt && (await findStoredReply(on.storage.read, on.cipher, attempt, now))
    if (first) return first.reply
    try {
      return await resultOf(call, facts, attempt)
    } catch (error) {
      // If this cannot be written either, the claim expires by itself.
      if (attempt?.isClaimed) await on.storage.write((tx) => releaseKey(tx, attempt)).catch(() => undefined)
      throw error
    }
  }

  async function resultOf(
    call: CallInput,
    facts: AuditFacts,
    attempt: IdempotentAttempt | undefined,
  ): Promise<unknown> {
    const { caller, now } = call
    const ready = steps.prepare && (await steps.prepare(call as unknown as AnyPreparation))
    if (ready instanceof EarlyReply) {
      if (!isTelemetry)
        throw new Error(`${name} was answered before its transaction: it would have no audit entry`)
      return ready.reply
    }
    const run = (db: Db) => {
      call.db = db
      return steps.run(call as unknown as AnyCall, ready as never)
    }

    if (!isChange) {
      const result = await run(on.storage.read)
      if (readings?.isNew(`${caller.kind} ${'id' in caller ? caller.id : call.ip}`, call, Date.parse(now))) {
        const about = { ...facts, details: { ...readAuditDetails(entry, call.query), ...facts.details } }
        const read = successEntry(entry, call, result, about, caller, call, now)
        if (read) await on.storage.write((tx) => recordAudit(tx, read))
      }
      return result
    }
    const change = async (tx: Db): Promise<IdempotentResult> => {
      if (caller.kind === 'workload') await holdWorkload(tx, caller)
      const reply = await run(tx)
      const audited = successEntry(entry, call, reply, facts, caller, call, now)
      if (audited && (!isGathered || on.agentEntries.isDue(audited))) await recordAudit(tx, audited)
      return { reply, orgId: audited?.orgId ?? null }
    }
    const work = async (tx: Db): Promise<unknown> =>
      attempt ? runOnce(tx, on.cipher, attempt, now, () => change(tx)) : (await change(tx)).reply
    return await on.storage.write(work, { unsynced: isTelemetry, snapshot: entry.isSnapshot ?? false })
  }
}

/** Sends what a handler has returned, as the entry says. */
function senderOf(
  entry: Endpoint,
  on: Pipeline,
): (request: FastifyRequest, reply: FastifyReply, result: unknown) => void {
  // Created with the first reply: creating all takes a tenth of the start-up time.
  let write: ReturnType<typeof replyWriter> | undefined
  return send

  function send(request: FastifyRequest, reply: FastifyReply, result: unknown): void {
    if (entry.redirects) {
      sendRedirect(reply, result as Redirect)
    } else if (entry.streams) {
      const { type, headers, pieces } = streamed(
        entry.streams[0],
        result as AsyncIterable<string> | StreamReply,
      )
      reply.type(type).headers(headers).send(Readable.from(pieces))
    } else {
      const shown = setSessionCookies(entry, request, reply, result, request.client.https, on.origins)
      write ??= replyWriter(entry.reply)
      reply.type('application/json; charset=utf-8').send(write(shown))
    }
  }
}

type Refuse = (request: FastifyRequest, error: unknown) => Promise<unknown>

/** Refusals are audited wherever they happen. Returns the error to send. */
const refusalsOf =
  (entry: Endpoint, on: Pipeline): Refuse =>
  async (request, error) => {
    const refused = refusalEntry(entry, request, problemOf(error), originOf(request), request.now)
    if (refused && (request.caller?.kind !== 'agent' || on.agentEntries.isDue(refused))) {
      const write = () => on.storage.write((tx) => recordAudit(tx, refused))
      await withFairShareKey(await fairShareKeyOf(request, on), write)
    }
    return error
  }

/** A caller may be known and refused before their key is. */
async function fairShareKeyOf(request: FastifyRequest, on: Pipeline): Promise<FairShareKey> {
  request.fairShareKey ??= await on.fairShareKeys.of(request.caller ?? { kind: 'nobody' }, request.client.ip)
  return request.fairShareKey
}

const originOf = (request: FastifyRequest): Origin => ({
  ip: request.client.ip,
  userAgent: userAgentOf(request.headers),
})

type Count = (name: SharedLimit | ProcessLimit, key: string, amount?: number) => Promise<void> | void

const countIn =
  (on: Pipeline): Count =>
  (name, key, amount) =>
    isShared(name) ? on.sharedLimiter.take(name, key) : on.limiter.take(name, key, amount)

/** Whether a reply is private to its caller: no proxy or browser may cache it. */
const isPrivate = ({ access, query, body, reply }: Endpoint): boolean =>
  access.who !== 'public' || [query, body, reply].some((schema) => schema && holdsSecrets(schema))

const callerIdOf = (caller: Caller): string | undefined =>
  caller.kind === 'agent' ? caller.deviceId : caller.kind === 'nobody' ? undefined : caller.id

/** A signal for a closed connection, created only for handlers that wait. */
function goneOf(reply: FastifyReply): AbortSignal {
  const gone = new AbortController()
  if (reply.raw.destroyed) gone.abort()
  else reply.raw.once('close', () => gone.abort())
  return gone.signal
}

const streamed = (type: StreamType, result: AsyncIterable<string> | StreamReply): StreamReply =>
  'pieces' in result ? result : { type, headers: {}, pieces: result }

export function stepsOf(handler: Handler<AnyEndpoint>): {
  prepare?: TwoStepHandler<AnyEndpoint, never>['prepare']
  run: TwoStepHandler<AnyEndpoint, never>['run']
} {
  return typeof handler === 'function' ? { run: handler } : handler
}
