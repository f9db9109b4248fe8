import type { Metric } from './metrics.ts'

/** Upper ends of the buckets, in seconds. */
const ends = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

type Times = { buckets: number[]; seconds: number; statuses: Map<number, number> }

/** Counts the requests of this process by the name of what they asked for: how they ended, and how long they took. */
export class RequestWatch {
  /** As many as there are endpoints: what leads nowhere has no name. */
  readonly #byName = new Map<string, Times>()

  add(name: string, status: number, milliseconds: number): void {
    let times = this.#byName.get(name)
    if (!times) {
      times = { buckets: Array(ends.length + 1).fill(0), seconds: 0, statuses: new Map() }
      this.#byName.set(name, times)
    }
    const seconds = milliseconds / 1000
    let bucket = 0
    while (bucket < ends.length && seconds > ends[bucket]!) bucket += 1
    times.buckets[bucket]! += 1
    times.seconds += seconds
    times.statuses.set(status, (times.statuses.get(status) ?? 0) + 1)
  }

  metrics(): Metric[] {
    const all = [...this.#byName].sort(([a], [b]) => (a < b ? -1 : 1))
    return [
      {
        name: 'svc_http_requests_total',
        kind: 'counter',
        help: 'Requests that this process has answered, by endpoint and status.',
        values: all.flatMap(([route, { statuses }]) =>
          [...statuses].map(([status, value]) => ({ labels: { route, status: String(status) }, value })),
        ),
      },
      {
        name: 'svc_http_request_duration_seconds',
        kind: 'histogram',
        help: 'How long they took, by endpoint.',
        values: all.flatMap(([route, { buckets, seconds }]) => {
          let count = 0
          const upTo = [...ends.map(String), '+Inf'].map((le, n) => {
            count += buckets[n]!
            return { suffix: '_bucket' as const, labels: { route, le }, value: count }
          })
          const sum = { suffix: '_sum' as const, labels: { route }, value: seconds }
          return [...upTo, sum, { suffix: '_count' as const, labels: { route }, value: count }]
        }),
      },
    ]
  }
}
