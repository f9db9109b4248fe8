import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import { gunzipSync } from 'node:zlib'
import { onTestFinished } from 'vitest'
import { listening } from '../cli/network.ts'
import { until } from './process.ts'

type Value = { stringValue?: string; intValue?: number; doubleValue?: number }
type Attribute = { key: string; value: Value }
type RawSpan = {
  name: string
  kind: number
  traceId: string
  spanId: string
  parentSpanId?: string
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: Attribute[]
  links?: { traceId: string; spanId: string }[]
  events?: { name: string; attributes: Attribute[] }[]
  status?: { code?: number }
}
type Batch = {
  resourceSpans: { resource: { attributes: Attribute[] }; scopeSpans: { spans: RawSpan[] }[] }[]
}

export type CollectedSpan = Omit<RawSpan, 'attributes'> & { attributes: Record<string, string | number> }

const flat = (attributes: Attribute[]): Record<string, string | number> =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.stringValue ?? Number(value.intValue ?? value.doubleValue),
    ]),
  )

/** A receiver of OTLP over HTTP with JSON; closes when the test ends. */
export async function collector(answer: (reply: ServerResponse) => void = (reply) => reply.end('{}')) {
  const spans: CollectedSpan[] = []
  const requests: { path: string; headers: IncomingHttpHeaders; text: string }[] = []
  const resources: Record<string, string | number>[] = []
  const server = createServer((request, reply) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const body = Buffer.concat(pieces)
      const text = (request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body).toString('utf8')
      requests.push({ path: request.url ?? '', headers: request.headers, text })
      for (const { resource, scopeSpans } of (JSON.parse(text) as Batch).resourceSpans) {
        resources.push(flat(resource.attributes))
        for (const span of scopeSpans.flatMap((scope) => scope.spans)) {
          spans.push({ ...span, attributes: flat(span.attributes) })
        }
      }
      answer(reply)
    })
  })
  const url = `http://127.0.0.1:${await listening(server)}`
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    url,
    spans,
    requests,
    resources,
    named: (name: string) => spans.filter((span) => span.name === name),
    /** Waits for a span of this name; returns the first one. */
    async span(name: string): Promise<CollectedSpan> {
      await until(() => spans.some((span) => span.name === name), 15_000)
      return spans.find((span) => span.name === name)!
    },
    /** The settings that send spans here, soon. */
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_BSP_SCHEDULE_DELAY: '20' },
  }
}
