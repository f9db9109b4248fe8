import type { Context } from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import {
  BatchSpanProcessor,
  type ReadableSpan,
  type Span,
  type SpanExporter,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace'
import type { Counter } from 'prom-client'
import { addCounter } from '../metrics.ts'
import type { TracingSettings } from './settings.ts'
import type { TracingParts } from './traces.ts'

type Result = Parameters<Parameters<SpanExporter['export']>[1]>[0]

const sayAgainMs = 60_000

/**
 * The queue of spans, and the way out. Spans that find it full are dropped, as are those that the collector does not accept:
 * the service waits for neither, and counts both.
 */
export class SpanQueue implements SpanProcessor {
  readonly #max: number
  readonly #log: TracingParts['log']
  readonly #spans: Counter<'outcome'>
  readonly #processor: BatchSpanProcessor
  #waiting = 0
  #failures = 0
  #sayAt = 0

  constructor({ url, headers, tls, timeoutMs, compression, queue }: TracingSettings, parts: TracingParts) {
    this.#max = queue.max
    this.#log = parts.log
    const ended = {
      name: 'svc_trace_spans_total',
      help: 'Spans of traces: exported, or dropped because the queue was full or the collector did not accept them.',
    }
    this.#spans = addCounter(parts.metrics, ended, 'outcome', ['exported', 'queue_full', 'export_failed'])
    const sender = new OTLPTraceExporter({
      url,
      headers: { ...headers },
      timeoutMillis: timeoutMs,
      // The exporter's own type of these values is an enumeration that it does not export.
      compression: compression as never,
      httpAgentOptions: { keepAlive: true, ...tls },
    })
    this.#processor = new BatchSpanProcessor({
      exporter: this.#counted(sender),
      maxQueueSize: queue.max,
      maxExportBatchSize: queue.batch,
      scheduledDelayMillis: queue.delayMs,
      exportTimeoutMillis: timeoutMs,
    })
  }

  onStart(span: Span, context: Context): void {
    this.#processor.onStart(span, context)
  }

  onEnd(span: ReadableSpan): void {
    if (this.#waiting < this.#max) {
      this.#waiting += 1
      this.#processor.onEnd(span)
    } else this.#spans.inc({ outcome: 'queue_full' })
  }

  forceFlush(): Promise<void> {
    return this.#processor.forceFlush()
  }

  shutdown(): Promise<void> {
    return this.#processor.shutdown()
  }

  #counted(sender: SpanExporter): SpanExporter {
    return {
      export: (spans, done) => {
        this.#waiting -= spans.length
        sender.export(spans, (result) => {
          this.#ended(spans.length, result)
          done(result)
        })
      },
      shutdown: () => sender.shutdown(),
    }
  }

  #ended(count: number, { code, error }: Result): void {
    // ExportResultCode.SUCCESS
    if (code === 0) {
      this.#spans.inc({ outcome: 'exported' }, count)
      if (this.#failures > 0) this.#log.info({ failures: this.#failures }, 'traces are exported again')
      this.#failures = 0
      this.#sayAt = 0
      return
    }
    this.#spans.inc({ outcome: 'export_failed' }, count)
    this.#failures += 1
    const now = performance.now()
    if (now < this.#sayAt) return
    this.#sayAt = now + sayAgainMs
    this.#log.warn({ reason: reasonOf(error), failures: this.#failures }, 'traces cannot be exported')
  }
}

/** Without what the collector answered: it may repeat the headers. */
function reasonOf(error: Error | undefined): string {
  const { code } = (error ?? {}) as { code?: unknown }
  if (typeof code === 'number') return `HTTP ${code}`
  return typeof code === 'string' ? code : 'no answer in time'
}
