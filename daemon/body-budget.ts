import { Problem } from '../src/core/errors.ts'
import type { Metric } from './metrics.ts'

/** Most bytes of bodies in flight: in the whole process, and of one caller. */
export type BodySettings = { whole: number; perCaller: number }

/** What is not larger finds room when larger bodies find none: heartbeats go on while logs wait. */
const small = 64 * 1024
const shareOfLarge = 0.75
/** After which bodies that are in flight now have been worked on. */
const retrySeconds = 5

type Reason = 'caller' | 'whole'

/**
 * Counts the bytes of bodies that are received, inflated, parsed and worked on. Nobody's bodies together take more memory than
 * their budget, however many come at once and however well they are packed.
 */
export class BodyBudget {
  readonly #settings: BodySettings
  /** Of callers with a body in flight alone. */
  readonly #byCaller = new Map<string, number>()
  readonly #refused = new Map<Reason, number>([
    ['caller', 0],
    ['whole', 0],
  ])
  #used = 0

  constructor(settings: BodySettings) {
    this.#settings = settings
  }

  /** A body of this caller, which has no bytes yet. */
  hold(caller: string): Held {
    return new Held((bytes, before) => this.#take(caller, bytes, before))
  }

  get used(): number {
    return this.#used
  }

  get callers(): number {
    return this.#byCaller.size
  }

  #take(caller: string, bytes: number, before: number): void {
    const { whole, perCaller } = this.#settings
    const own = (this.#byCaller.get(caller) ?? 0) + bytes
    if (bytes > 0) {
      if (own > perCaller) throw this.#refusal('caller')
      const room = before + bytes > small ? whole * shareOfLarge : whole
      if (this.#used + bytes > room) throw this.#refusal('whole')
    }
    this.#used += bytes
    if (own > 0) this.#byCaller.set(caller, own)
    else this.#byCaller.delete(caller)
  }

  #refusal(reason: Reason): Problem {
    this.#refused.set(reason, this.#refused.get(reason)! + 1)
    const [code, message] =
      reason === 'caller'
        ? (['rate_limited', 'Too many bytes of requests at once: send them one after the other'] as const)
        : (['unavailable', 'The service has too many bytes of requests under way'] as const)
    return new Problem(code, message, { retryAfter: retrySeconds })
  }

  metrics(): Metric[] {
    return [
      {
        name: 'svc_body_bytes_in_flight',
        kind: 'gauge',
        help: 'Bytes of bodies that this process receives or works on, inflated and parsed.',
        values: [{ value: this.#used }],
      },
      {
        name: 'svc_bodies_refused_total',
        kind: 'counter',
        help: 'Bodies that found no room, by whose budget was used up: that of their caller, or of the whole process.',
        values: [...this.#refused].map(([reason, value]) => ({ labels: { reason }, value })),
      },
    ]
  }
}

/** What one body takes of the budget. */
export class Held {
  readonly #take: (bytes: number, before: number) => void
  #bytes = 0

  constructor(take: (bytes: number, before: number) => void) {
    this.#take = take
  }

  /** @throws rate_limited or unavailable, and then it takes no more than before */
  grow(bytes: number): void {
    this.to(this.#bytes + bytes)
  }

  /** @throws as `grow`, when it is more than before */
  to(bytes: number): void {
    if (bytes === this.#bytes) return
    this.#take(bytes - this.#bytes, this.#bytes)
    this.#bytes = bytes
  }

  release(): void {
    this.to(0)
  }
}
