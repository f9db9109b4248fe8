import { randomUUID } from 'node:crypto'
import {
  type Attributes,
  type Context,
  type Link,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { parseTraceParent } from '@opentelemetry/core'
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  ParentBasedSampler,
  RandomIdGenerator,
  type Sampler,
  SamplingDecision,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import { isId } from '../../src/core/ids.ts'
import { statementName } from '../../src/storage/query/prepared.ts'
import type { Trace } from '../../src/storage/trace.ts'
import { version } from '../../src/version.ts'
import { statementOf } from '../storage-watch.ts'
import { SpanQueue } from './exporting.ts'
import type { TracingSettings } from './settings.ts'
import type { EndedRequest, RequestTrace, Tracing, TracingParts } from './traces.ts'

/* Everything that knows OpenTelemetry. Attributes have ids, names of the code and numbers: never a value of a caller or a tenant. */

/** Statements of one request that get a span; those beyond are counted. */
const maxStatements = 100
/** How long the end of the service waits for the collector. */
const closeMs = 1400

type Event = { id: string; type: string; orgId: string }

/** `database`: `db.system.name` of the semantic conventions. */
export function openSdk(
  settings: TracingSettings,
  database: string,
  parts: TracingParts,
): Tracing & { background: Trace } {
  const root = samplerOf(settings.sampler.share)
  const ids = new FixableIds()
  const provider = new TracerProvider({
    resource: defaultResource().merge(
      resourceFromAttributes({
        'service.version': version,
        'service.instance.id': randomUUID(),
        ...settings.resource,
      }),
    ),
    sampler: settings.sampler.isParentBased ? new ParentBasedSampler({ root }) : root,
    idGenerator: ids,
    // No value of ours is longer: a bound for what a later change adds.
    spanLimits: { attributeValueLengthLimit: 256, attributeCountLimit: 32, linkCountLimit: 32 },
    spanProcessors: [new SpanQueue(settings, parts)],
  })
  const tracer = provider.getTracer('svc', version)

  /**
   * The trace of an event has the id of the event, and its first span the second half of it. So each process knows the trace of
   * every row of the event and its deliveries, and they need no column for it.
   */
  function contextOfEvent(eventId: string): Context {
    const { traceId, spanId } = traceOfEvent(eventId)
    const { decision } = root.shouldSample(ROOT_CONTEXT, traceId, '', SpanKind.INTERNAL, {}, [])
    const isSampled = decision === SamplingDecision.RECORD_AND_SAMPLED
    const traceFlags = isSampled ? TraceFlags.SAMPLED : TraceFlags.NONE
    return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true })
  }

  function publish(event: Event, from?: Span): void {
    const links = from ? [{ context: from.spanContext() }] : []
    const options = { kind: SpanKind.PRODUCER, links, attributes: attributesOf(event) }
    const span = ids.fixed(traceOfEvent(event.id), () =>
      tracer.startSpan(`publish ${event.type}`, options, ROOT_CONTEXT),
    )
    span.end()
    from?.addLink({ context: span.spanContext(), attributes: attributesOf(event) })
  }

  return {
    request: (traceparent) =>
      new TracedRequest(tracer, callerOf(traceparent, settings.callers), database, publish),
    background: { id: undefined, ran() {}, audited() {}, published: (event) => publish(event) },
    fannedOut(events, since) {
      for (const event of events) {
        const attributes = { ...attributesOf(event), 'svc.webhook.deliveries': event.deliveries }
        const options = { kind: SpanKind.INTERNAL, startTime: since, attributes }
        tracer.startSpan(`fan out ${event.type}`, options, contextOfEvent(event.id)).end()
      }
    },
    attempted({ id, webhookId, orgId, event, eventId }, { attempt, responseStatus, failureClass }, since) {
      const attributes: Attributes = {
        ...attributesOf({ id: eventId, type: event, orgId }),
        'svc.webhook.id': webhookId,
        'svc.webhook.delivery.id': id,
        'svc.webhook.attempt': attempt,
        ...(responseStatus !== null && { 'http.response.status_code': responseStatus }),
        ...(failureClass !== null && { 'error.type': failureClass }),
      }
      const options = { kind: SpanKind.CLIENT, startTime: since, attributes }
      const span = tracer.startSpan(`deliver ${event}`, options, contextOfEvent(eventId))
      if (failureClass !== null) span.setStatus({ code: SpanStatusCode.ERROR })
      span.end()
    },
    async close() {
      const { promise: late, resolve } = Promise.withResolvers<void>()
      const timer = setTimeout(resolve, closeMs)
      // Spans that cannot be sent any more are lost, as while a collector is away.
      await Promise.race([provider.shutdown().catch(() => undefined), late])
      clearTimeout(timer)
    },
  }
}

class TracedRequest implements RequestTrace {
  readonly #tracer: Tracer
  readonly #span: Span
  readonly #context: Context
  readonly #database: string
  readonly #publish: (event: Event, from: Span) => void
  #statements = 0

  constructor(
    tracer: Tracer,
    { parent, links }: { parent: Context; links: Link[] },
    database: string,
    publish: (event: Event, from: Span) => void,
  ) {
    this.#tracer = tracer
    this.#database = database
    this.#publish = publish
    this.#span = tracer.startSpan('request', { kind: SpanKind.SERVER, links }, parent)
    this.#context = trace.setSpan(parent, this.#span)
  }

  get id(): string {
    return this.#span.spanContext().traceId
  }

  ran(sql: string, milliseconds: number): void {
    this.#statements += 1
    if (this.#statements > maxStatements || !this.#span.isRecording()) return
    const { operation, table } = statementOf(sql)
    const name = statementName(sql)
    const now = Date.now()
    const attributes = {
      'db.system.name': this.#database,
      'db.operation.name': operation,
      ...(table !== '' && { 'db.collection.name': table }),
      ...(name !== undefined && { 'svc.statement': name }),
    }
    const options = { kind: SpanKind.CLIENT, startTime: now - milliseconds, attributes }
    const title = table === '' ? operation : `${operation} ${table}`
    this.#tracer.startSpan(title, options, this.#context).end(now)
  }

  published(event: Event): void {
    this.#publish(event, this.#span)
  }

  audited(entryId: string): void {
    this.#span.addEvent('audit entry', { 'svc.audit.id': entryId })
  }

  end({ id, method, path, status, caller }: EndedRequest): void {
    this.#span.updateName(path === undefined ? method : `${method} ${path}`)
    this.#span.setAttributes({
      'http.request.method': method,
      ...(path !== undefined && { 'http.route': path }),
      'http.response.status_code': status,
      // One that the caller chose may say anything.
      ...(isId(id) && { 'svc.request.id': id }),
      'svc.statements': this.#statements,
      ...(caller && { 'svc.caller.kind': caller.kind }),
      ...(caller?.id !== undefined && { 'svc.caller.id': caller.id }),
      ...(caller?.orgId !== undefined && { 'svc.org.id': caller.orgId }),
    })
    if (status >= 500) this.#span.setStatus({ code: SpanStatusCode.ERROR })
    this.#span.end()
  }
}

/**
 * Anybody can send a `traceparent`. As parent it decides the id of our trace and whether it is kept, so a stranger could write
 * into the traces of others and have all of theirs stored; a link leaves both decisions here.
 */
function callerOf(
  traceparent: string | undefined,
  callers: TracingSettings['callers'],
): { parent: Context; links: Link[] } {
  const given = traceparent === undefined || callers === 'ignore' ? null : parseTraceParent(traceparent)
  if (given === null) return { parent: ROOT_CONTEXT, links: [] }
  const context = { ...given, isRemote: true }
  if (callers === 'link') return { parent: ROOT_CONTEXT, links: [{ context }] }
  return { parent: trace.setSpanContext(ROOT_CONTEXT, context), links: [] }
}

const attributesOf = ({ id, type, orgId }: Event): Attributes => ({
  'svc.event.id': id,
  'svc.event.type': type,
  'svc.org.id': orgId,
})

function traceOfEvent(eventId: string): { traceId: string; spanId: string } {
  const traceId = eventId.replaceAll('-', '')
  return { traceId, spanId: traceId.slice(16) }
}

const samplerOf = (share: number): Sampler =>
  share === 1
    ? new AlwaysOnSampler()
    : share === 0
      ? new AlwaysOffSampler()
      : new TraceIdRatioBasedSampler(share)

/** Random ids, except for a span whose ids are those of a row. */
class FixableIds extends RandomIdGenerator {
  #fixed: { traceId: string; spanId: string } | undefined

  /** `start` starts one span, and is synchronous. */
  fixed<T>(ids: { traceId: string; spanId: string }, start: () => T): T {
    this.#fixed = ids
    try {
      return start()
    } finally {
      this.#fixed = undefined
    }
  }

  override generateTraceId(): string {
    return this.#fixed?.traceId ?? super.generateTraceId()
  }

  override generateSpanId(): string {
    return this.#fixed?.spanId ?? super.generateSpanId()
  }
}
