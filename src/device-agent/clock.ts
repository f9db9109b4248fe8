import { setTimeout as wait } from 'node:timers/promises'

export type MonotonicClock = {
  /** Milliseconds since some fixed moment; never goes back. */
  now(): number
  /** Rejects when the signal aborts. */
  sleep(ms: number, signal: AbortSignal): Promise<void>
}

export const monotonicClock: MonotonicClock = {
  now: () => performance.now(),
  sleep: (ms, signal) => wait(ms, undefined, { signal }),
}
