import { Problem } from '../src/core/errors.ts'
import type { Limit, LimitName, Limits } from '../src/core/limits.ts'

/** What was accepted in the last `seconds`, oldest first: when, and how much at a time. */
type Window = { limit: Limit; times: number[]; amounts: number[]; used: number }

/** Most windows of one limit: of more, the one that began first is forgotten. Another limit's are left alone. */
const most = 100_000

/**
 * Exact sliding windows, in memory. What would make more than `count` in the last `seconds` is refused, and not
 * counted, so that a client that hammers recovers. More than `count` at once is accepted when nothing else was.
 */
export class Limiter {
  readonly #limits: Limits
  readonly #windows = new Map<LimitName, Map<string, Window>>()

  constructor(limits: Limits) {
    this.#limits = limits
  }

  /** Refuses when the window is full, without counting. @throws rate_limited */
  check(name: LimitName, key: string): void {
    const window = this.#windows.get(name)?.get(key)
    const wait = window ? waitFor(window, 1, performance.now()) : 0
    if (wait > 0) throw refusal(name, wait)
  }

  /** Counts one event, or so many. @throws rate_limited with the seconds until they are accepted */
  take(name: LimitName, key: string, amount = 1): void {
    const wait = this.#count(name, key, amount)
    if (wait > 0) throw refusal(name, wait)
  }

  /** The same for what is not refused beyond the limit: false when the window is full. */
  tryTake(name: LimitName, key: string): boolean {
    return this.#count(name, key, 1) === 0
  }

  /** Counts, or gives the seconds until it would be accepted. */
  #count(name: LimitName, key: string, amount: number): number {
    const limit = this.#limits[name]
    if (!limit) return 0
    const window = this.#windowOf(name, key, limit)
    const now = performance.now()
    const wait = waitFor(window, amount, now)
    if (wait > 0) return wait
    window.times.push(now)
    window.amounts.push(amount)
    window.used += amount
    return 0
  }

  /** Forgets windows that are empty by now. */
  sweep(): void {
    const now = performance.now()
    for (const windows of this.#windows.values()) {
      for (const [key, window] of windows) {
        expire(window, now)
        if (window.used === 0) windows.delete(key)
      }
    }
  }

  /** How many windows there are. */
  get size(): number {
    return [...this.#windows.values()].reduce((sum, windows) => sum + windows.size, 0)
  }

  #windowOf(name: LimitName, key: string, limit: Limit): Window {
    let windows = this.#windows.get(name)
    if (!windows) {
      windows = new Map()
      this.#windows.set(name, windows)
    }
    let window = windows.get(key)
    if (!window) {
      const [oldest] = windows.keys()
      if (oldest !== undefined && windows.size >= most) windows.delete(oldest)
      window = { limit, times: [], amounts: [], used: 0 }
      windows.set(key, window)
    }
    return window
  }
}

/** Drops what is no longer in the window. */
function expire(window: Window, now: number): void {
  const { times, amounts, limit } = window
  while (times.length > 0 && times[0]! <= now - limit.seconds * 1000) {
    times.shift()
    window.used -= amounts.shift()!
  }
}

/** Seconds until so many events are accepted; 0 when that is now. */
function waitFor(window: Window, amount: number, now: number): number {
  expire(window, now)
  const { times, amounts, limit } = window
  let used = window.used
  let wait = 0
  for (let at = 0; used > 0 && used + amount > limit.count; at++) {
    used -= amounts[at]!
    wait = (times[at]! + limit.seconds * 1000 - now) / 1000
  }
  return wait
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
  INVITE_ADDRESS: 'Too many invitations to this address. Please try again later.',
  INVITE_INVITER: 'Too many invitations. Please try again later.',
  INVITE_TENANT: 'Too many invitations. Please try again later.',
  LETTER: 'Too many requests. Please try again later.',
  NOTICE: 'Too many changes of how this account signs in. Please try again later.',
  PASSWORD: 'Too many attempts. Please try again later.',
  FORGOT: 'Too many requests. Please try again later.',
  REGISTER: 'Too many registration attempts. Try again later.',
  REGISTER_PARTNER: 'Too many registration attempts. Try again later.',
  VERIFY_EMAIL: 'Too many verification attempts. Try again later.',
  SMS: 'Too many SMS requests. Try again later.',
  SMS_PHONE: 'Too many SMS requests. Try again later.',
  PHONE: 'Too many verification attempts for this number. Try again later.',
  FEDERATED: 'Too many attempts. Please try again later.',
  ENROLL_IP: 'Enrollment rate limit exceeded',
  AGENT: 'Agent rate limit exceeded',
  BODY_BYTES: 'Too many bytes of requests in a while',
  AGENT_CHANGES: 'The agent changes its tokens or its update too often',
  EVENT_LOGS: 'Rate limit exceeded',
  LOG_BYTES: 'The device hands in more logs than it may in a while',
}
