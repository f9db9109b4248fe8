import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { record } from '../src/audit/outbox.ts'
import type { Cipher } from '../src/core/cipher.ts'
import { changes, type Endpoint, type Redirect, type StreamType } from '../src/core/endpoint.ts'
import { type Fault, invalid } from '../src/core/errors.ts'
import type { Clock, Instant } from '../src/core/time.ts'
import type { Quota } from '../src/credentials/api-keys/window.ts'
import type { AuditFacts, Call, Caller, Handler, Preparation, Steps, Streamed } from '../src/handler.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { type Actors, scopeOfCaller } from './actor.ts'
import { type Client, networkOf } from './address.ts'
import { entryOf, type Origin, refusalOf } from './auditing.ts'
import { keepSession, sendOn, withCookieToken } from './browser.ts'
import { attemptOf, once } from './idempotency.ts'
import { inflate } from './inflate.ts'
import { quotaHeaders } from './key-actor.ts'
import type { Limiter } from './limiter.ts'
import { problemOf } from './problems.ts'
import { readingOf, readingsOf } from './readings.ts'
import { replyWriter } from './reply-writer.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Set once the caller is known, also when they are then refused. */
    caller?: Caller
    /** What the handler has noted so far; also of use when it then refuses. */
    facts: AuditFacts
    client: Client
    /** Where the API key of the caller stands. */
    quota?: Quota
    /** One instant for the whole request. */
    now: Instant
  }
}

export type Pipeline = {
  storage: Storage
  actors: Actors
  limiter: Limiter
  cipher: Cipher
  clock: Clock
  clientOf: (peer: string, headers: FastifyRequest['headers']) => Client
}

type AnyEndpoint = Endpoint & { params: z.ZodObject; query: z.ZodObject; body: z.ZodType }
type AnyCall = Call<AnyEndpoint>

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
  const steps = stepsOf(handler as unknown as Handler<AnyEndpoint>)
  const status = entry.status ?? 200
  // Made with the first reply: to make all of them is a tenth of a start.
  let write: ReturnType<typeof replyWriter> | undefined
  const route = `${entry.method} ${entry.path}`
  const isTelemetry = entry.audit !== undefined && 'unaudited' in entry.audit && entry.access.who === 'agent'

  const readings = readingsOf(entry)

  app.route({
    method: entry.method,
    url: `/api/v1${entry.path}`,
    bodyLimit: entry.maxBody ?? 1024 * 1024,
    exposeHeadRoute: false,
    ...(entry.gzip && { preParsing: inflate }),
    config: {
      name,
      keys: entry.access.who === 'user' && entry.access.key,
      form: entry.form === true,
      redirects: entry.redirects === true,
    },
    onRequest: (request, reply) => guard(request, () => admit(request, reply)),
    handler: (request, reply) => guard(request, () => answer(request, reply)),
  })

  async function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (entry.limit) on.limiter.take(entry.limit, networkOf(request.client.ip))
    try {
      request.caller = await on.actors.admit(entry, request, request.now)
    } finally {
      if (request.quota) reply.headers(quotaHeaders(request.quota))
    }
  }

  async function answer(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    const caller = request.caller as Caller
    const { now } = request
    const { facts } = request
    const asked = {
      ...parse(entry, request),
      ...originOf(request),
      cookies: request.cookies,
      caller,
      scope: scopeOfCaller(caller),
      now,
      storage: on.storage,
      note: (more: AuditFacts) =>
        void Object.assign(facts, more, { details: { ...facts.details, ...more.details } }),
      gone: () => goneOf(reply),
    }
    const limit: Preparation<AnyEndpoint>['limit'] = (...taken) => on.limiter.take(...taken)
    const ready = await steps.prepare?.({ ...asked, limit } as unknown as Preparation<AnyEndpoint>)
    const run = (db: Db) => steps.run({ ...asked, db } as unknown as AnyCall, ready as never)

    if (!changes(entry)) {
      const result = await run(on.storage.read)
      if (
        readings?.isNew(`${caller.kind} ${'id' in caller ? caller.id : asked.ip}`, asked, Date.parse(now))
      ) {
        const about = { ...facts, details: { ...readingOf(entry, asked.query), ...facts.details } }
        const read = entryOf(entry, asked, result, about, caller, asked, now)
        if (read) await on.storage.write((tx) => record(tx, read))
      }
      return send(request, reply, result)
    }
    const owner = 'id' in caller ? caller.id : `${caller.kind} ${asked.ip}`
    const attempt =
      status === 201 ? attemptOf(owner, request.headers['idempotency-key'], route, asked.body) : undefined
    const work = async (tx: Db): Promise<unknown> => {
      const change = async () => {
        const result = await run(tx)
        const audited = entryOf(entry, asked, result, facts, caller, asked, now)
        if (audited) await record(tx, audited)
        return result
      }
      return attempt ? once(tx, on.cipher, attempt, now, change) : change()
    }
    return send(request, reply, await on.storage.write(work, { unsynced: isTelemetry }))
  }

  function send(request: FastifyRequest, reply: FastifyReply, result: unknown): unknown {
    reply.code(status)
    if (entry.redirects) return sendOn(reply, result as Redirect)
    if (entry.streams) {
      const { type, headers, pieces } = streamed(entry.streams[0], result as AsyncIterable<string> | Streamed)
      return reply.type(type).headers(headers).send(Readable.from(pieces))
    }
    const shown = keepSession(entry, request, reply, result, request.client.https)
    write ??= replyWriter(entry.reply)
    return reply.type('application/json; charset=utf-8').send(write(shown))
  }

  /** Refusals are audited wherever on the path they happen. */
  async function guard<T>(request: FastifyRequest, step: () => Promise<T>): Promise<T> {
    try {
      return await step()
    } catch (error) {
      const refused = refusalOf(entry, request, problemOf(error), originOf(request), request.now)
      if (refused) await on.storage.write((tx) => record(tx, refused))
      throw error
    }
  }

  function originOf(request: FastifyRequest): Origin {
    const { 'user-agent': userAgent } = request.headers
    return { ip: request.client.ip, userAgent: userAgent ?? null }
  }
}

/** Made for the few that wait for somebody else. */
function goneOf(reply: FastifyReply): AbortSignal {
  const gone = new AbortController()
  if (reply.raw.destroyed) gone.abort()
  else reply.raw.once('close', () => gone.abort())
  return gone.signal
}

const streamed = (type: StreamType, result: AsyncIterable<string> | Streamed): Streamed =>
  'pieces' in result ? result : { type, headers: {}, pieces: result }

function stepsOf(handler: Handler<AnyEndpoint>): {
  prepare?: Steps<AnyEndpoint, never>['prepare']
  run: Steps<AnyEndpoint, never>['run']
} {
  return typeof handler === 'function' ? { run: handler } : handler
}

const nothing = z.strictObject({})
const noBody = nothing.optional()

/** The parts of the request through their schemas; every fault at once. @throws invalid_request */
function parse(entry: Endpoint, request: FastifyRequest): { params: unknown; query: unknown; body: unknown } {
  const faults: Fault[] = []
  const through = (part: string, schema: z.ZodType, value: unknown) => {
    const result = schema.safeParse(value)
    if (result.success) return result.data
    for (const issue of result.error.issues) faults.push(...faultsOf(part, issue, value))
    return undefined
  }
  const parsed = {
    params: through('params', entry.params ?? nothing, request.params),
    query: through('query', entry.query ?? nothing, request.query),
    body: through(
      'body',
      entry.body ?? noBody,
      withHeaders(entry, request, withCookieToken(entry, request)) ?? undefined,
    ),
  }
  if (faults.length > 0) throw invalid(faults)
  return parsed
}

/** What a body leaves out and a header says. */
function withHeaders({ headers }: Endpoint, request: FastifyRequest, body: unknown): unknown {
  if (headers === undefined || body === null || typeof body !== 'object' || Array.isArray(body)) return body
  const whole: Record<string, unknown> = { ...body }
  for (const [header, field] of Object.entries(headers)) {
    const said = request.headers[header]
    if (typeof said === 'string' && said !== '') whole[field] ??= said.replace(/^bearer +/i, '')
  }
  return whole
}

function faultsOf(part: string, issue: z.core.$ZodIssue, value: unknown): Fault[] {
  const path = [part, ...issue.path.map(String)].join('.')
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ path: `${path}.${key}`, message: 'is not a known field' }))
  }
  if (issue.code === 'invalid_type' && isMissing(value, issue.path)) return [{ path, message: 'is required' }]
  return [{ path, message: issue.message }]
}

const isMissing = (value: unknown, path: readonly PropertyKey[]): boolean =>
  path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], value) ===
  undefined
