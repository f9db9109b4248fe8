import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import cookie from '@fastify/cookie'
import fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify'
import helmet from 'helmet'
import { api, sections } from '../src/api.ts'
import { type Contract, entriesOf, maxPublicBody } from '../src/core/endpoint.ts'
import { Problem } from '../src/core/errors.ts'
import { openApiOf } from '../src/core/openapi.ts'
import type { Handler } from '../src/handler.ts'
import { describeClosure, type WriteBlock, type WriteGate } from '../src/storage/copy/write-gate.ts'
import { scopeOfCaller } from './actor.ts'
import { networkOf } from './address.ts'
import { addBodies } from './bodies.ts'
import { sendCsrfHeader } from './browser.ts'
import type { ConnectionLimit } from './connection-limit.ts'
import { allowOrigin, answerPreflight, isAllowed, isPreflight } from './cors.ts'
import { docsPages } from './docs/pages.ts'
import { type Gateway, isUpgrade } from './gateway.ts'
import { addMetrics, type Metrics } from './metrics.ts'
import { addPages } from './pages.ts'
import { addRoute, type Pipeline } from './pipeline.ts'
import { refuseConnection, sendProblem, traceIdOf } from './problems.ts'
import { limitSlowReaders } from './reply-timeout.ts'
import type { EndedRequest, Tracing } from './tracing/traces.ts'

/** The check of `/health/ready`. */
export type Readiness = () => Promise<{ ready: boolean; checks: Record<string, string> }>

/** Route configuration for the hooks of the app. */
type RouteConfig = {
  name?: string
  keys?: boolean
  agent?: boolean
  redirects?: boolean
  isPrivate?: boolean
}

/** By group and action, as in the contract. */
export type Handlers = Record<string, Record<string, unknown>>

/** A serializer compiler that compiles nothing; routes have no Fastify schemas. */
const nothing = () => () => () => ''

type About = {
  version: string
  log: FastifyBaseLogger
  readiness: Readiness
  /** Called with unexpected errors of handlers. */
  onError?: (error: unknown) => void
  metrics?: Metrics
  gateway?: Gateway
  connections?: ConnectionLimit
  tracing?: Tracing | undefined
  /** Time limit for the headers of a request. */
  headerMs?: number
  /** The public address, for the pages of the service; without it there are no pages. */
  publicUrl?: () => string
  contract?: Contract
}

/** The HTTP service: every entry of the contract through the pipeline, health, and the OpenAPI document. */
export function buildApp(handlers: Handlers, on: Pipeline, about: About): FastifyInstance {
  const { version, log, readiness, metrics, gateway, connections, publicUrl } = about
  const { headerMs = 20_000, contract = api as Contract } = about
  const app = createServer(log, headerMs)
  // Cookies are parsed on use (browser.ts).
  app.register(cookie, { hook: false })
  addBodies(app, on.bodies, on.limiter)
  limitSlowReaders(app, on.replies)

  const security = securityHeaders()
  beginRequests(app, on, security, about)
  closeConnections(app, gateway)
  gateway?.serve(app.server)
  connections?.serve(app.server)
  reportRequests(app, log, metrics)
  answerFailures(app, on, contract, { security, onError: about.onError })

  // Before the framework starts, which would not pass a failure on.
  const routes = entriesOf(contract).map((one) => ({ ...one, handler: handlerOf(handlers, one.name) }))
  app.after(() => {
    for (const { name, entry, handler } of routes) addRoute(app, name, entry, handler, on)
    addHealth(app, version, readiness, on.gate)
    if (metrics) addMetrics(app, metrics)
    addReference(app, contract, version)
    if (publicUrl) addPages(app, publicUrl)
  })
  return app
}

const createServer = (log: FastifyBaseLogger, headerMs: number): FastifyInstance =>
  fastify({
    loggerInstance: childless(log),
    genReqId: requestId,
    logController: new LogController({ disableRequestLogging: true }),
    forceCloseConnections: 'idle',
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 200 },
    requestTimeout: 60_000,
    // For requests without a route.
    bodyLimit: maxPublicBody,
    // Any other Upgrade request is answered as HTTP/1.1.
    http: {
      shouldUpgradeCallback: isUpgrade,
      // Also for connections that send nothing.
      headersTimeout: headerMs,
      connectionsCheckingInterval: Math.min(headerMs / 2, 5000),
    },
    // Requests are validated by zod and replies written by replyWriter: no Fastify compiler is loaded.
    schemaController: {
      compilersFactory: { buildValidator: nothing as never, buildSerializer: nothing as never },
    },
    clientErrorHandler: refuseConnection,
    // An undecodable path arrives here before any hook.
    frameworkErrors: (error, request, reply) => {
      sendProblem(request, reply.header('x-request-id', request.id), error)
    },
  })

/** First of all a request gets its time and its client, its reply the headers that all have, and its address is counted. */
function beginRequests(
  app: FastifyInstance,
  on: Pipeline,
  security: Record<string, string>,
  { version, tracing }: About,
): void {
  const ofData = Object.fromEntries(Object.entries(security).filter(([name]) => !forPages.has(name)))
  const plain = { 'x-content-type-options': security['x-content-type-options'] }
  app.addHook('onRequest', (request, reply, done) => {
    if (tracing) request.trace = tracing.request(traceparentOf(request))
    const { name, keys, agent, redirects, isPrivate } = request.routeOptions.config as RouteConfig
    // Browsers cannot request replies to agent tokens, so these omit the browser headers; refusals have all.
    reply.headers(agent ? plain : name === undefined ? security : ofData).header('x-request-id', request.id)
    if (isPrivate) reply.header('cache-control', 'no-store')
    if (request.headers['x-service-client'] === 'cli') reply.header('x-service-version', version)
    // Scripts never call agent routes or redirects.
    if (!agent && !redirects && request.url.startsWith('/api/v1/')) {
      allowOrigin(on.origins, request, reply)
      if (isAllowed(on.origins, request)) sendCsrfHeader(request, reply)
    }
    request.client = on.clientOf(request.ip, request.headers)
    request.facts = {}
    request.now = on.clock()
    try {
      limited(request, keys)
    } catch (error) {
      return done(error as Error)
    }
    done()
  })
  function limited(request: FastifyRequest, keys = false): void {
    // Health checks are not rate limited, so that a flood does not block monitoring.
    if (request.url.startsWith('/health')) return
    const network = networkOf(request.client.ip)
    // An API key has its own limit instead of the address limit; an invalid one counts for the address.
    if (keys && request.headers['x-api-key'] !== undefined) on.limiter.check('IP', network)
    else on.limiter.take('IP', network)
  }
}

/** A connection that stays open after its last reply would delay the end of the process. */
function closeConnections(app: FastifyInstance, gateway: Gateway | undefined): void {
  let closing = false
  app.addHook('preClose', async () => {
    closing = true
    await gateway?.close()
  })
  app.addHook('onSend', (_, reply, payload, done) => {
    if (closing) reply.header('connection', 'close')
    done(null, payload)
  })
}

/** Counts, traces and logs each request when its reply has been sent. */
function reportRequests(app: FastifyInstance, log: FastifyBaseLogger, metrics: Metrics | undefined): void {
  // These lines have fixed fields, so there is nothing to redact.
  const requests = log.child({}, { redact: [] })
  app.addHook('onResponse', (request, reply, done) => {
    const { name } = request.routeOptions.config as RouteConfig
    const { caller: who } = request
    const caller = who && 'id' in who ? who.id : who?.kind
    const ms = Math.round(reply.elapsedTime * 10) / 10
    if (name !== undefined) metrics?.onRequest(name, reply.statusCode, reply.elapsedTime)
    if (request.trace) request.trace.end(endedRequest(request, reply.statusCode))
    const line = {
      requestId: request.id,
      ...traceIdOf(request),
      method: request.method,
      route: name,
      status: reply.statusCode,
      ms,
      caller,
    }
    // A child has a level of its own.
    if (requests.level !== log.level) requests.level = log.level
    requests.info(line, 'request')
    done()
  })
}

/** Answers what fails, and what has no route. */
function answerFailures(
  app: FastifyInstance,
  { origins }: Pipeline,
  contract: Contract,
  { security, onError }: { security: Record<string, string>; onError: About['onError'] },
): void {
  app.setErrorHandler((error, request, reply) => {
    onError?.(error)
    return sendProblem(request, reply.headers(security), error)
  })
  const methodsOf = methodsByPath(contract)
  app.setNotFoundHandler((request, reply) => {
    request.held?.release()
    const methods = methodsOf(request.url)
    if (methods.length === 0) return sendProblem(request, reply, new Problem('not_found'))
    if (isPreflight(origins, request)) return answerPreflight(reply, methods)
    return sendProblem(request, reply.header('allow', methods.join(', ')), new Problem('method_not_allowed'))
  })
}

const traceparentOf = ({ headers: { traceparent } }: FastifyRequest): string | undefined =>
  typeof traceparent === 'string' ? traceparent : undefined

/** What a trace says of a request: no path, address or name, which may be those of people. */
function endedRequest({ id, method, routeOptions, caller }: FastifyRequest, status: number): EndedRequest {
  const { name } = routeOptions.config as RouteConfig
  const scope = caller && scopeOfCaller(caller)
  const who = caller && {
    kind: caller.kind,
    id: 'id' in caller ? caller.id : caller.kind === 'agent' ? caller.deviceId : undefined,
    orgId: scope?.kind === 'organization' ? scope.orgId : undefined,
  }
  return { id, method, path: name === undefined ? undefined : routeOptions.url, status, caller: who }
}

/** A child logger for every request costs as much as a small reply; lines have their requestId instead. */
function childless(log: FastifyBaseLogger): FastifyBaseLogger {
  const own: FastifyBaseLogger = Object.create(log, { child: { value: () => own } })
  return own
}

/** Headers about the capabilities of a page, which mean nothing for replies with data. */
const forPages = new Set([
  'cross-origin-opener-policy',
  'origin-agent-cluster',
  'x-dns-prefetch-control',
  'x-download-options',
  'x-permitted-cross-domain-policies',
  'x-xss-protection',
])

/** The headers of Helmet, computed once: they are the same on every reply. */
function securityHeaders(): Record<string, string> {
  const headers: Record<string, string> = {}
  const recorder = {
    setHeader: (name: string, value: string) => void Object.assign(headers, { [name.toLowerCase()]: value }),
    removeHeader: () => {},
  }
  const directives = { defaultSrc: ["'none'"], frameAncestors: ["'none'"] }
  const write = helmet({ contentSecurityPolicy: { useDefaults: false, directives } })
  write({} as IncomingMessage, recorder as unknown as ServerResponse, () => {})
  return headers
}

const description =
  'Multi-tenant device management: partners, organizations, sites, enrollment keys, devices and a verifiable audit log. ' +
  'Where `Idempotency-Key` is among the parameters, a request can be sent again with the same key and happens once; ' +
  'everywhere else the header is refused (400), with the reason.'

/** Created on first use, so that they cost no start-up time. */
function addReference(app: FastifyInstance, contract: Contract, version: string): void {
  // Made and encoded once: for each request it would block all others.
  let document: Promise<Buffer> | undefined
  const docs = docsPages(contract, { version, sections })
  const describe = async () =>
    Buffer.from(JSON.stringify(await openApiOf(contract, { title: 'svc', version, description }, sections)))
  app.get('/api/v1/openapi.json', async (_, reply) => {
    document ??= describe()
    return reply.type('application/json; charset=utf-8').send(await document)
  })
  const sendDocs = async (slug: string | undefined, reply: FastifyReply) => {
    const made = await docs(slug)
    if (made === undefined) throw new Problem('not_found')
    return reply.header('content-security-policy', made.csp).type('text/html; charset=utf-8').send(made.html)
  }
  app.get('/docs', async (_, reply) => sendDocs(undefined, reply))
  app.get<{ Params: { tag: string } }>('/docs/:tag', async ({ params }, reply) => sendDocs(params.tag, reply))
}

/** The methods of a path; none for an unknown path. */
function methodsByPath(contract: Contract): (url: string) => string[] {
  const entries = entriesOf(contract).map(({ entry: { method, path, bytes } }) => {
    const pattern = path.replace(/\/$/, '').replace(/:\w+/g, '[^/]+')
    const methods = bytes ? [method, 'HEAD'] : [method]
    return { methods, pattern: new RegExp(`^/api/v1${pattern}/?$`) }
  })
  return (url) => {
    const [path = ''] = url.split('?')
    return [...new Set(entries.filter(({ pattern }) => pattern.test(path)).flatMap(({ methods }) => methods))]
  }
}

export function handlerOf(handlers: Handlers, name: string): Handler<never> {
  const [group = '', action = ''] = name.split('.')
  const handler = handlers[group]?.[action]
  if (!handler) throw new Error(`${name} has no handler`)
  return handler as Handler<never>
}

/** How long a result of `/health/ready` is reused: the endpoint is public, and each check costs a write and some reads. */
const freshMs = 1000

/** Also below the API, where it is described. */
export const healthOf = (version: string, clientAddress: string, closure: WriteBlock | undefined) => ({
  status: 'ok' as const,
  version,
  uptime: process.uptime(),
  clientAddress,
  ...(closure !== undefined && { maintenance: describeClosure(closure) }),
})

function addHealth(
  app: FastifyInstance,
  version: string,
  readiness: Readiness,
  gate: Pick<WriteGate, 'closure'> | undefined,
): void {
  let last: { at: number; answer: ReturnType<Readiness> } | undefined
  app.get('/health', async ({ client }) => healthOf(version, client.ip, gate?.closure))
  app.get('/health/live', async () => ({ status: 'ok' }))
  app.get('/health/ready', async (_, reply) => {
    const now = performance.now()
    if (!last || now - last.at > freshMs) last = { at: now, answer: readiness() }
    const { ready, checks } = await last.answer
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ready' : 'not_ready', checks })
  })
}

/** The caller's X-Request-Id when it is a plain token, else a new one. */
function requestId(request: { headers: Record<string, string | string[] | undefined> }): string {
  const given = request.headers['x-request-id']
  return typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID()
}
