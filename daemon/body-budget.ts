import type { Counter, Registry } from 'prom-client'
import { Problem } from '../src/core/errors.ts'
import { addCounter, addGauge } from './metrics.ts'

/** Most bytes of bodies in flight: in the whole process, and of one caller. */
export type BodyLimits = { whole: number; perCaller: number }

/** What is not larger finds room when larger bodies find none: heartbeats go on while logs wait. */
const small = 64 * 1024
const shareOfLarge = 0.75
/** After which bodies that are in flight now have been worked on. */
const retrySeconds = 5

const names = {
  requests: {
    bytes: {
      name: 'svc_body_bytes_in_flight',
      help: 'Bytes of bodies that this process receives or works on, inflated and parsed.',
    },
    refused: {
      name: 'svc_bodies_refused_total',
      help: 'Bodies that found no room, by whose budget was used up: that of their caller, or of the whole process.',
    },
  },
  replies: {
    bytes: {
      name: 'svc_reply_bytes_in_flight',
      help: 'Bytes of large replies that their readers have not taken yet.',
    },
    refused: {
      name: 'svc_replies_refused_total',
      help: 'Replies that found no room, by whose budget was used up: that of their caller, or of the whole process.',
    },
  },
}

type Reason = 'caller' | 'whole'

/**
 * Counts the bytes of bodies: of requests that are received, inflated, parsed and worked on, or of replies until they are taken.
 * Nobody's bodies together take more memory than their budget, however many come at once and however well they are packed.
 */
export class BodyBudget {
  readonly #settings: BodyLimits
  /** Of callers with a body in flight alone. */
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

  /** A body of this caller, which has no bytes yet. */
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
    const own = (this.#byCaller.get(caller) ?? 0) + bytes
    if (bytes > 0 && !anyway) {
      if (own > perCaller) throw this.#refusal('caller')
      const room = before + bytes > small ? whole * shareOfLarge : whole
      if (this.#used + bytes > room) throw this.#refusal('whole')
    }
    this.#used += bytes
    if (own > 0) this.#byCaller.set(caller, own)
    else this.#byCaller.delete(caller)
  }

  #refusal(reason: Reason): Problem {
    this.#refused.inc({ reason })
    const [code, message] =
      reason === 'caller'
        ? ([
            'rate_limited',
            `Too many bytes of ${this.#of} at once: send requests one after the other`,
          ] as const)
        : (['unavailable', `The service has too many bytes of ${this.#of} under way`] as const)
    return new Problem(code, message, { retryAfter: retrySeconds })
  }
}

type Take = (bytes: number, before: number, anyway: boolean) => void

/** What one body takes of the budget. */
export class BodyReservation {
  readonly #take: Take
  #bytes = 0

  constructor(take: Take) {
    this.#take = take
  }

  /** @throws rate_limited or unavailable, and then it takes no more than before */
  grow(bytes: number): void {
    this.to(this.#bytes + bytes)
  }

  /** `anyway`: also where there is no room. @throws as `grow`, when it is more than before */
  to(bytes: number, { anyway = false } = {}): void {
    if (bytes === this.#bytes) return
    this.#take(bytes - this.#bytes, this.#bytes, anyway)
    this.#bytes = bytes
  }

  release(): void {
    this.to(0)
  }
}
