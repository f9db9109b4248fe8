import { hash, timingSafeEqual } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { Problem } from '../src/core/errors.ts'
import { withDeadline } from './deadline.ts'

/**
 * Metrics whose values are read from the database at a scrape. `keepMs`: how long they are served before they are read
 * again, for reads that cost more than a look at an index.
 */
export type StoredMetrics = { registry: Registry; refresh(): Promise<void>; keepMs?: number }

export type Metrics = {
  /** Bearer tokens of those who may read them, as of now; undefined: nobody may. */
  tokens(): { current: string; former: string | undefined } | undefined
  onRead(token: 'current' | 'former'): void
  onRequest: RequestObserver
  /** The text format of Prometheus. */
  read(): Promise<string>
}

type RequestObserver = (route: string, status: number, milliseconds: number) => void

type Text = { name: string; help: string }

/** A gauge that is read at each scrape. */
export function addGauge(registry: Registry, { name, help }: Text, read: () => number): void {
  const gauge: Gauge = new Gauge({
    name,
    help,
    registers: [registry],
    collect: () => gauge.set(read()),
  })
}

/** A counter by the values of one label, which are 0 from the start. */
export function addCounter<Label extends string>(
  registry: Registry,
  { name, help }: Text,
  label: Label,
  values: readonly string[],
): Counter<Label> {
  const counter = new Counter({ name, help, labelNames: [label], registers: [registry] })
  for (const value of values) counter.inc({ [label]: value } as Record<Label, string>, 0)
  return counter
}

/** Requests that lead to an endpoint: how they end, and how long they take. */
export function observeRequests(registry: Registry): RequestObserver {
  const requests = new Counter({
    name: 'svc_http_requests_total',
    help: 'Requests that this process has answered, by endpoint and status.',
    labelNames: ['route', 'status'],
    registers: [registry],
  })
  const durations = new Histogram({
    name: 'svc_http_request_duration_seconds',
    help: 'Duration of requests, by endpoint.',
    labelNames: ['route'],
    registers: [registry],
  })
  return (route, status, milliseconds) => {
    requests.inc({ route, status: String(status) })
    durations.observe({ route }, milliseconds / 1000)
  }
}

/** What Node.js says of the process. It is observed once: these observers cannot be ended, and cost processor time. */
let ofProcess: Registry | undefined

function processMetrics(): Registry {
  if (ofProcess === undefined) {
    ofProcess = new Registry()
    collectDefaultMetrics({ register: ofProcess })
  }
  return ofProcess
}

/** Milliseconds that a scrape waits for metrics that need the database. */
const deadlineMs = 3000

/**
 * Reads all metrics. Those from the database are left out, and counted as such, when it does not answer in time: a
 * scrape has to succeed when the database does not.
 */
export function metricsReader(
  registry: Registry,
  stored: readonly StoredMetrics[],
  onError: (error: unknown) => void,
): () => Promise<string> {
  const own = [processMetrics(), registry]
  const lacking = new Gauge({
    name: 'svc_metrics_lacking',
    help: 'Groups of metrics that are left out, because the database did not answer for them in time.',
    registers: [registry],
  })
  const groups = stored.map((group) => storedReader(group, onError))
  return async () => {
    const texts = await Promise.all(groups.map((read) => read()))
    lacking.set(texts.filter((text) => text === undefined).length)
    return [
      ...(await Promise.all(own.map((one) => one.metrics()))),
      ...texts.filter((text) => text !== undefined),
    ].join('\n')
  }
}

/**
 * Reads one group. A read that is late continues for the next scrape; until then, for as long again as the values are kept,
 * the previous ones are served.
 */
function storedReader(
  { registry, refresh, keepMs = 0 }: StoredMetrics,
  onError: (error: unknown) => void,
): () => Promise<string | undefined> {
  let kept: { text: string; at: number } | undefined
  const isWithin = (ms: number) => kept !== undefined && performance.now() - kept.at < ms
  const read = withDeadline(
    async () => {
      await refresh()
      kept = { text: await registry.metrics(), at: performance.now() }
      return kept.text
    },
    deadlineMs,
    onError,
  )
  return async () => {
    if (isWithin(keepMs)) return kept?.text
    const text = await read()
    return text ?? (isWithin(2 * keepMs) ? kept?.text : undefined)
  }
}

/** `GET /metrics`, for whoever has a token. Without one there is no such page. */
export function addMetrics(app: FastifyInstance, { tokens, onRead, read }: Metrics): void {
  app.get('/metrics', async (request, reply) => {
    const known = tokens()
    if (known === undefined) throw new Problem('not_found')
    const given = digest(request.headers.authorization ?? '')
    const isOf = (token: string | undefined) =>
      token !== undefined && timingSafeEqual(given, digest(`Bearer ${token}`))
    const token = isOf(known.current) ? 'current' : isOf(known.former) ? 'former' : undefined
    if (token === undefined) throw new Problem('unauthenticated')
    onRead(token)
    return reply.type(Registry.PROMETHEUS_CONTENT_TYPE).send(await read())
  })
}

/** Digests of equal length, for a constant-time comparison. */
const digest = (text: string): Buffer => hash('sha256', text, 'buffer')
