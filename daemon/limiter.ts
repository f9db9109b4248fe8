import { Problem } from '../src/core/errors.ts'
import type { Limit, LimitName, Limits } from '../src/core/limits.ts'

/** Times of the newest accepted events, as a ring that grows to the limit's count. */
type Window = { limit: Limit; times: number[]; next: number }

/**
 * Exact sliding windows, in memory. An event is accepted when fewer than `count` were accepted in the last
 * `seconds`; refused ones are not counted, so that a client that hammers recovers.
 */
export class Limiter {
  readonly #limits: Limits
  readonly #windows = new Map<string, Window>()

  constructor(limits: Limits) {
    this.#limits = limits
  }

  /** Refuses when the window is full, without counting. @throws rate_limited */
  check(name: LimitName, key: string): void {
    const window = this.#windows.get(`${name} ${key}`)
    const wait = window ? fullFor(window, performance.now()) : 0
    if (wait > 0) throw refusal(name, wait)
  }

  /** Counts one event. @throws rate_limited with the seconds until the next one is accepted */
  take(name: LimitName, key: string): void {
    const limit = this.#limits[name]
    if (!limit) return
    const place = `${name} ${key}`
    const window = this.#windows.get(place) ?? { limit, times: [], next: 0 }
    this.#windows.set(place, window)
    const wait = waitOf(window, performance.now())
    if (wait > 0) throw refusal(name, wait)
  }

  /** Forgets windows that are empty by now. */
  sweep(): void {
    const now = performance.now()
    for (const [place, { limit, times, next }] of this.#windows) {
      const newest = times.at(next - 1) ?? 0
      if (newest < now - limit.seconds * 1000) this.#windows.delete(place)
    }
  }
}

/** Seconds until another event is accepted; 0 when that is now. */
function fullFor({ times, next, limit: { count, seconds } }: Window, now: number): number {
  return times.length < count ? 0 : Math.max(0, times[next]! + seconds * 1000 - now) / 1000
}

/** Accepts the event and answers 0, or answers the seconds to wait. */
function waitOf(window: Window, now: number): number {
  const { times, next, limit } = window
  const wait = fullFor(window, now)
  if (wait > 0) return wait
  if (times.length < limit.count) {
    times.push(now)
    return 0
  }
  times[next] = now
  window.next = (next + 1) % limit.count
  return 0
}

const refusal = (name: LimitName, wait: number): Problem =>
  new Problem('rate_limited', messages[name], { retryAfter: Math.ceil(wait) })

const messages: Partial<Record<LimitName, string>> = {
  IP: 'Too many requests',
  BEARER: 'Too many requests',
  LOGIN_IP: 'Too many login attempts. Please try again later.',
  LOGIN_ACCOUNT: 'Too many login attempts. Please try again later.',
  MFA: 'Too many MFA attempts',
  INVITE_PREVIEW: 'Too many attempts. Please try again later.',
  INVITE_ACCEPT: 'Too many attempts. Please try again later.',
  PASSWORD: 'Too many attempts. Please try again later.',
  FORGOT: 'Too many requests. Please try again later.',
  REGISTER: 'Too many registration attempts. Try again later.',
  REGISTER_PARTNER: 'Too many registration attempts. Try again later.',
  VERIFY_EMAIL: 'Too many verification attempts. Try again later.',
  SMS: 'Too many SMS requests. Try again later.',
  SMS_PHONE: 'Too many SMS requests. Try again later.',
  PHONE: 'Too many verification attempts for this number. Try again later.',
  ENROLL_IP: 'Enrollment rate limit exceeded',
  AGENT: 'Agent rate limit exceeded',
}
