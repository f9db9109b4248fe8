import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Registry } from 'prom-client'
import { Problem } from '../src/core/errors.ts'
import type { Limit, LimitName, Limits, ProcessLimit, SharedLimit } from '../src/core/limits.ts'
import { addCounter } from './metrics.ts'

/**
 * Times and amounts of the events accepted in the last `seconds`, oldest first, from index `start` on. Entries before
 * `start` have expired, and are removed many at a time: removing them one by one would move a long array each time.
 */
type Window = { limit: Limit; times: number[]; amounts: number[]; start: number; used: number }

/** The windows of one limit. */
type Windows = {
  byKey: Map<string, Window>
  /** Continues after the last window dropped: a new iterator would skip over all dropped entries each time. */
  oldest: MapIterator<string> | undefined
}

/** Most windows of one limit: beyond that the oldest window of the same limit is dropped. */
const maxWindows = 100_000
/** Windows checked in one turn of the event loop. */
const sweptAtOnce = 1000

/**
 * Sliding windows of this process, in memory, for the limits that each process counts: exact up to 10,000 events, above that to a thousandth of their time. An event that would
 * exceed `count` in the last `seconds` is refused, and not counted, so that a client that retries constantly recovers. A
 * single amount above `count` is accepted in an empty window.
 */
export class Limiter {
  readonly #limits: Limits
  readonly #windows = new Map<ProcessLimit, Windows>()
  readonly #onRefused: (name: ProcessLimit) => void

  constructor(limits: Limits, onRefused: (name: ProcessLimit) => void = () => {}) {
    this.#limits = limits
    this.#onRefused = onRefused
  }

  /** Refuses when the window is full, without counting. @throws rate_limited */
  check(name: ProcessLimit, key: string): void {
    const window = this.#windows.get(name)?.byKey.get(key)
    const wait = window ? waitFor(window, 1, performance.now()) : 0
    if (wait === 0) return
    this.#onRefused(name)
    throw refusal(name, wait)
  }

  /** Counts one event, or `amount`. @throws rate_limited with the seconds until they are accepted */
  take(name: ProcessLimit, key: string, amount = 1): void {
    const wait = this.#count(name, key, amount)
    if (wait > 0) throw refusal(name, wait)
  }

  /** Counts one event; returns false, and counts nothing, when the window is full. */
  tryTake(name: ProcessLimit, key: string): boolean {
    return this.#count(name, key, 1) === 0
  }

  /** Counts, or returns the seconds until the event would be accepted. */
  #count(name: ProcessLimit, key: string, amount: number): number {
    const limit = this.#limits[name]
    if (!limit) return 0
    const window = this.#windowOf(name, key, limit)
    const now = performance.now()
    const wait = waitFor(window, amount, now)
    if (wait > 0) {
      this.#onRefused(name)
      return wait
    }
    add(window, amount, now)
    return 0
  }

  /** Deletes windows whose events have all expired. */
  async sweep(): Promise<void> {
    let swept = 0
    for (const { byKey } of this.#windows.values()) {
      for (const [key, window] of byKey) {
        expire(window, performance.now())
        if (window.used === 0) byKey.delete(key)
        swept += 1
        if (swept % sweptAtOnce === 0) await nextTurn()
      }
    }
  }

  /** Number of windows. */
  get size(): number {
    return [...this.#windows.values()].reduce((sum, windows) => sum + windows.byKey.size, 0)
  }

  #windowOf(name: ProcessLimit, key: string, limit: Limit): Window {
    let windows = this.#windows.get(name)
    if (!windows) {
      windows = { byKey: new Map(), oldest: undefined }
      this.#windows.set(name, windows)
    }
    let window = windows.byKey.get(key)
    if (!window) {
      if (windows.byKey.size >= maxWindows) dropOldest(windows)
      window = { limit, times: [], amounts: [], start: 0, used: 0 }
      windows.byKey.set(key, window)
    }
    return window
  }
}

/** Counts the refusals of this process by the limit, never by whom; the limits that password-guard counts are left out. */
export function refusalCounter(
  metrics: Registry,
  limits: Limits,
): (name: SharedLimit | ProcessLimit) => void {
  const refusals = {
    name: 'svc_rate_limit_refusals_total',
    help: 'Requests and events that this process refused because of a rate limit, by limit.',
  }
  const counted = Object.keys(limits).filter((name) => !name.startsWith('WRONG_PASSWORDS_'))
  const counter = addCounter(metrics, refusals, 'limit', counted)
  return (name) => counter.inc({ limit: name })
}

function dropOldest(windows: Windows): void {
  windows.oldest ??= windows.byKey.keys()
  const { value, done } = windows.oldest.next()
  if (done) windows.oldest = undefined
  else windows.byKey.delete(value)
}

/** A window of more events than this is kept in slots, each of which expires as a whole. */
const maxExact = 10_000
const slots = 1000

function add(window: Window, amount: number, now: number): void {
  const { limit, times, amounts } = window
  const last = times.length - 1
  window.used += amount
  const slotMs = (limit.seconds * 1000) / slots
  if (limit.count > maxExact && last >= window.start && now - times[last]! < slotMs) {
    amounts[last]! += amount
    return
  }
  times.push(now)
  amounts.push(amount)
}

/** Removes expired events from the window. */
function expire(window: Window, now: number): void {
  const { times, amounts, limit } = window
  while (window.start < times.length && times[window.start]! <= now - limit.seconds * 1000) {
    window.used -= amounts[window.start]!
    window.start += 1
  }
  // Only if at least half has expired, so that each entry is moved once on average.
  if (window.start * 2 < times.length || window.start === 0) return
  times.splice(0, window.start)
  amounts.splice(0, window.start)
  window.start = 0
}

/** Seconds until `amount` would be accepted; 0: now. */
function waitFor(window: Window, amount: number, now: number): number {
  expire(window, now)
  const { times, amounts, limit } = window
  let used = window.used
  let wait = 0
  for (let at = window.start; used > 0 && used + amount > limit.count; at++) {
    used -= amounts[at]!
    wait = (times[at]! + limit.seconds * 1000 - now) / 1000
  }
  return wait
}

export const refusal = (name: LimitName, wait: number): Problem =>
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
  DEVICE_START: 'Too many sign-in attempts. Please try again later.',
  DEVICE_CODE: 'Too many codes entered. Please try again later.',
  DEVICE_POLL: 'Too many requests. Wait as long as the service told.',
  FEDERATED: 'Too many attempts. Please try again later.',
  ENROLL_IP: 'Enrollment rate limit exceeded',
  AGENT_PROOF: 'Too many proofs from this address',
  AGENT: 'Agent rate limit exceeded',
  BODY_BYTES: 'Too many bytes of requests in a short time',
  BODY_BYTES_HOURLY: 'Too many bytes of requests in an hour',
  AGENT_CHANGES: 'The agent changes its tokens or its update too often',
  EVENT_LOGS: 'Rate limit exceeded',
  LOG_BYTES: 'The device sends too many logs in a short time',
}
