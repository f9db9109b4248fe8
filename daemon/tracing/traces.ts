import type { Logger } from 'pino'
import type { Registry } from 'prom-client'
import type { Trace } from '../../src/storage/trace.ts'
import type { DeliveryOutcome, PendingDelivery } from '../../src/webhooks/deliveries/rules.ts'
import type { FannedOut } from '../../src/webhooks/worker/fan-out.ts'

/** The trace of one request, from its first byte to the last one of its reply. */
export type RequestTrace = Trace & {
  id: string
  end(request: EndedRequest): void
}

export type EndedRequest = {
  id: string
  method: string
  /** The path of the contract, with names in the place of values; undefined: none matches. */
  path: string | undefined
  status: number
  caller: { kind: string; id: string | undefined; orgId: string | undefined } | undefined
}

/** Traces that are sent to a collector. Times are those of `Date.now()`. */
export type Tracing = {
  request(traceparent: string | undefined): RequestTrace
  /** Events for which deliveries were created. */
  fannedOut(events: readonly FannedOut[], since: number): void
  /** An attempt of a delivery ended. */
  attempted(delivery: PendingDelivery, outcome: DeliveryOutcome, since: number): void
  /** Sends what waits, for a moment. */
  close(): Promise<void>
}

export type TracingParts = { log: Pick<Logger, 'warn' | 'info'>; metrics: Registry }
