import { AsyncLocalStorage } from 'node:async_hooks'

/** What the work in progress reports to the trace that it belongs to. Each call must be cheap. */
export type Trace = {
  /** 32 hexadecimal digits (W3C Trace Context); undefined for background work, which begins a trace for each event. */
  id: string | undefined
  /** A statement ended, well or not. Its text has no values. */
  ran(sql: string, milliseconds: number): void
  /** An event was recorded that webhooks receive once the transaction commits. */
  published(event: { id: string; type: string; orgId: string }): void
  /** An audit entry was recorded. */
  audited(entryId: string): void
}

/** Costs nothing until the first `run`, and nothing runs in it unless traces are exported. */
const current = new AsyncLocalStorage<Trace | undefined>()

/** That of all work of this process that belongs to no request: loops, batches of several requests, frames of agents. */
let background: Trace | undefined

export function setBackgroundTrace(trace: Trace | undefined): void {
  background = trace
}

export const currentTrace = (): Trace | undefined => current.getStore() ?? background

/** Runs `work` as part of a trace; undefined: of none. */
export const inTrace = <T>(trace: Trace | undefined, work: () => T): T =>
  trace === current.getStore() ? work() : current.run(trace, work)

/**
 * `work` as part of the trace of whoever calls this now. For what another turn of the event loop runs: the answer of a database
 * arrives with its connection, and a queued write runs with those before it.
 */
export function traced<A extends unknown[], T>(work: (...given: A) => T): (...given: A) => T {
  const trace = current.getStore()
  return trace === undefined ? work : (...given) => current.run(trace, work, ...given)
}
