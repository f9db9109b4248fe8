import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'

/** What a fleet has done so far. Times in milliseconds. */
export type Counts = {
  enrolled: number
  heartbeats: number
  /** Answered more than a tenth of the interval late. */
  late: number
  /** Not answered before the next one was due. */
  missed: number
  /** Requests without a reply, or with an error; heartbeats are retried. */
  failures: number
  /** Heartbeats of agents that the service refuses: their devices were decommissioned or quarantined. */
  refused: number
  updates: { begun: number; done: number; failed: number }
  commands: number
  liveQueries: number
  logs: number
  events: number
  connections: { open: number; opened: number; lost: number }
}

export type Times = { p50Ms: number; p99Ms: number; maxMs: number }

export class Tally {
  readonly counts: Counts = {
    enrolled: 0,
    heartbeats: 0,
    late: 0,
    missed: 0,
    failures: 0,
    refused: 0,
    updates: { begun: 0, done: 0, failed: 0 },
    commands: 0,
    liveQueries: 0,
    logs: 0,
    events: 0,
    connections: { open: 0, opened: 0, lost: 0 },
  }
  /** Number of failures by reason: a status with its code, or why there was no reply. */
  readonly reasons = new Map<string, number>()
  readonly #all = createHistogram()
  readonly #recent = createHistogram()

  /** An answered heartbeat, with its duration. */
  recordHeartbeat(ms: number): void {
    const microseconds = Math.max(1, Math.round(ms * 1000))
    this.counts.heartbeats += 1
    this.#all.record(microseconds)
    this.#recent.record(microseconds)
  }

  recordFailure(reason: string): void {
    this.counts.failures += 1
    this.reasons.set(reason, (this.reasons.get(reason) ?? 0) + 1)
  }

  get times(): Times {
    return timesOf(this.#all)
  }

  /** Times of the heartbeats since the last call. */
  takeRecent(): Times {
    const times = timesOf(this.#recent)
    this.#recent.reset()
    return times
  }
}

const timesOf = (histogram: RecordableHistogram): Times => {
  const at = (percent: number) => (histogram.count === 0 ? 0 : histogram.percentile(percent) / 1000)
  return { p50Ms: at(50), p99Ms: at(99), maxMs: histogram.count === 0 ? 0 : histogram.max / 1000 }
}
