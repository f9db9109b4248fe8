import type { Counter, Registry } from 'prom-client'
import { addCount, countOf } from '../src/core/counts.ts'
import { Problem } from '../src/core/errors.ts'
import { addCounter, addGauge } from './metrics.ts'

/** Most bytes of bodies in flight: in the process (`whole`), and of one caller. */
export type BodyLimits = { whole: number; perCaller: number }

/** Bodies up to this size have reserved room: heartbeats continue while logs wait. */
const small = 64 * 1024
const shareOfLarge = 0.75
/** Time in which the present bodies are expected to be processed. */
const retrySeconds = 5

const names = {
  requests: {
    bytes: {
      name: 'svc_body_bytes_in_flight',
      help: 'Bytes of bodies that this process receives or processes, inflated and parsed.',
    },
    refused: {
      name: 'svc_bodies_refused_total',
      help: 'Bodies that were refused, by the exhausted budget: that of their caller, or of the process.',
    },
  },
  replies: {
    bytes: {
      name: 'svc_reply_bytes_in_flight',
      help: 'Bytes of large replies that clients have not received yet.',
    },
    refused: {
      name: 'svc_replies_refused_total',
      help: 'Replies that were refused, by the exhausted budget: that of their caller, or of the process.',
    },
  },
}

type Reason = 'caller' | 'whole'

/**
 * Counts the bytes of bodies: of requests while they are received, inflated, parsed and processed, or of replies until received.
 * The bodies of a caller never take more memory than the budget, however many are concurrent and however well compressed.
 */
export class BodyBudget {
  readonly #settings: BodyLimits
  /** Only callers with a body in flight. */
  readonly #byCaller = new Map<string, number>()
  readonly #refused: Counter<'reason'>
  #used = 0

  readonly #of: 'requests' | 'replies'

  constructor(settings: BodyLimits, of: 'requests' | 'replies', metrics: Registry) {
    this.#settings = settings
    this.#of = of
    addGauge(metrics, names[of].bytes, () => this.#used)
    this.#refused = addCounter(metrics, names[of].refused, 'reason', ['caller', 'whole'])
  }

  /** A reservation of this caller, with no bytes yet. */
  hold(caller: string): BodyReservation {
    return new BodyReservation((...taken) => this.#take(caller, ...taken))
  }

  get used(): number {
    return this.#used
  }

  get callers(): number {
    return this.#byCaller.size
  }

  #take(caller: string, bytes: number, before: number, anyway: boolean): void {
    const { whole, perCaller } = this.#settings
    const own = countOf(this.#byCaller, caller) + bytes
    if (bytes > 0 && !anyway) {
      if (own > perCaller) throw this.#refusal('caller')
      const room = before + bytes > small ? whole * shareOfLarge : whole
      if (this.#used + bytes > room) throw this.#refusal('whole')
    }
    this.#used += bytes
    addCount(this.#byCaller, caller, bytes)
  }

  #refusal(reason: Reason): Problem {
    this.#refused.inc({ reason })
    const [code, message] =
      reason === 'caller'
        ? ([
            'rate_limited',
            `Too many bytes of concurrent ${this.#of}: send requests one after the other`,
          ] as const)
        : (['unavailable', `The service has too many bytes of ${this.#of} in progress`] as const)
    return new Problem(code, message, { retryAfter: retrySeconds })
  }
}

type Take = (bytes: number, before: number, anyway: boolean) => void

/** The reservation of one body in the budget. */
export class BodyReservation {
  readonly #take: Take
  #bytes = 0

  constructor(take: Take) {
    this.#take = take
  }

  /** @throws rate_limited or unavailable, and then the reservation does not change */
  grow(bytes: number): void {
    this.to(this.#bytes + bytes)
  }

  /** `anyway`: even without room. @throws as `grow`, when the reservation grows */
  to(bytes: number, { anyway = false } = {}): void {
    if (bytes === this.#bytes) return
    this.#take(bytes - this.#bytes, this.#bytes, anyway)
    this.#bytes = bytes
  }

  release(): void {
    this.to(0)
  }
}
