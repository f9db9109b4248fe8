import { hash, timingSafeEqual } from 'node:crypto'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { FastifyInstance } from 'fastify'
import { Problem } from '../src/core/errors.ts'

export type Metric = {
  name: string
  kind: 'counter' | 'gauge' | 'histogram'
  help: string
  /** `suffix`: of the parts of a histogram. */
  values: { suffix?: '_bucket' | '_sum' | '_count'; labels?: Record<string, string>; value: number }[]
}

export type Metrics = {
  token: string
  /** Told of every request that led somewhere. */
  onRequest(name: string, status: number, milliseconds: number): void
  /** What a service can be asked besides the process it is. */
  read(): Promise<Metric[]>
}

/** Milliseconds between two looks, which each of them is later than the one before. */
const resolution = 20

/** `GET /metrics` in the text format of Prometheus, for whoever has the token. */
export function addMetrics(app: FastifyInstance, { token, read }: Metrics): void {
  const delay = monitorEventLoopDelay({ resolution })
  delay.enable()
  app.addHook('onClose', async () => void delay.disable())
  const known = digest(`Bearer ${token}`)
  app.get('/metrics', async (request, reply) => {
    if (!timingSafeEqual(digest(request.headers.authorization ?? ''), known)) {
      throw new Problem('unauthenticated')
    }
    const text = [...processMetrics(delay), ...(await read())].map(textOf).join('')
    return reply.type('text/plain; version=0.0.4; charset=utf-8').send(text)
  })
}

/** Texts of one length, so that a comparison takes the same time for each. */
const digest = (text: string): Buffer => hash('sha256', text, 'buffer')

const gauge = (name: string, help: string, value: number): Metric => ({
  name,
  kind: 'gauge',
  help,
  values: [{ value }],
})

function processMetrics(delay: ReturnType<typeof monitorEventLoopDelay>): Metric[] {
  const seconds = (nanoseconds: number) =>
    delay.count === 0 ? 0 : Math.max(0, nanoseconds / 1e9 - resolution / 1000)
  const metrics = [
    gauge('process_resident_memory_bytes', 'Memory that the process holds.', process.memoryUsage.rss()),
    gauge('svc_uptime_seconds', 'Since the process started.', process.uptime()),
    gauge(
      'nodejs_eventloop_lag_p99_seconds',
      'How late the event loop was, since the last time this was read.',
      seconds(delay.percentile(99)),
    ),
    gauge('nodejs_eventloop_lag_max_seconds', 'The same, at most.', seconds(delay.max)),
  ]
  delay.reset()
  return metrics
}

function textOf({ name, kind, help, values }: Metric): string {
  const lines = values.map(({ suffix = '', labels = {}, value }) => {
    const all = Object.entries(labels).map(([label, text]) => `${label}=${JSON.stringify(text)}`)
    return `${name}${suffix}${all.length > 0 ? `{${all.join(',')}}` : ''} ${value}`
  })
  return `${[`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`, ...lines].join('\n')}\n`
}
