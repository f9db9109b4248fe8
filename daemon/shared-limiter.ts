import type { Limit, Limits, SharedLimit } from '../src/core/limits.ts'
import type { Clock } from '../src/core/time.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { refusal } from './limiter.ts'
import { countEvent, windowOf } from './shared-windows.ts'

/** Most windows that are remembered to be full: for others the database is asked again. */
const maxFull = 10_000
/** Milliseconds to wait for a window that another process has locked. */
const lockMs = 1000

type Ids = readonly [id: string, ...string[]]

type Shared = {
  storage: Storage
  limits: Limits
  clock: Clock
  /** The key of the digests, and the other one while it is being changed. */
  pepper: string
  otherPepper: string | undefined
  onRefused?: (name: SharedLimit) => void
}

/**
 * Sliding windows that all processes on one database count together, and that outlive them: no second process and no
 * restart gives anybody more attempts. An event that would exceed `count` in the last `seconds` is refused, and not
 * counted. It is counted in a transaction of its own, before the request is worked on.
 *
 * A full window is remembered until it has room again, so a flood of refused attempts reaches no database.
 */
export class SharedLimiter {
  readonly #on: Shared
  /** When a full window has room again, and since when that is known. The oldest comes first. */
  readonly #full = new Map<string, { since: number; freeAt: number }>()
  /** The last one of those who wait for a window. */
  readonly #turns = new Map<string, Promise<number>>()

  constructor(on: Shared) {
    this.#on = on
  }

  /** Counts one event. @throws rate_limited with the seconds until it is accepted */
  async take(name: SharedLimit, key: string): Promise<void> {
    const { limits, pepper, otherPepper } = this.#on
    const limit = limits[name]
    if (!limit) return
    const id = windowOf(pepper, name, key)
    const other = otherPepper === undefined ? id : windowOf(otherPepper, name, key)
    // Both keys may name one window.
    const ids: Ids = other === id ? [id] : [id, other]
    const freeAt = this.#fullUntil(id) ?? (await this.#inTurn(id, () => this.#count(ids, limit)))
    if (freeAt === 0) return
    this.#on.onRefused?.(name)
    throw refusal(name, Math.max(1, (freeAt - this.#now()) / 1000))
  }

  /**
   * Counts one event in a transaction, for what only happens if that commits: it is then counted, and otherwise neither.
   * @throws rate_limited
   */
  async takeWithin(tx: Db, name: SharedLimit, key: string): Promise<void> {
    const { limits, pepper, otherPepper } = this.#on
    const limit = limits[name]
    if (!limit) return
    const id = windowOf(pepper, name, key)
    const other = otherPepper === undefined ? id : windowOf(otherPepper, name, key)
    const freeAt = await countEvent(tx, other === id ? [id] : [id, other], limit, () => this.#now())
    if (freeAt === 0) return
    this.#on.onRefused?.(name)
    throw refusal(name, Math.max(1, (freeAt - this.#now()) / 1000))
  }

  get size(): number {
    return this.#full.size
  }

  #now(): number {
    return Date.parse(this.#on.clock())
  }

  /** Returns 0, or when the window has room again. */
  async #count(ids: Ids, limit: Limit): Promise<number> {
    const [id] = ids
    const known = this.#fullUntil(id)
    if (known !== undefined) return known
    const work = (tx: Db) => countEvent(tx, ids, limit, () => this.#now())
    const freeAt = await this.#on.storage.write(work, { unsynced: true, lockMs })
    if (freeAt > 0) this.#remember(id, freeAt)
    return freeAt
  }

  /** A window that was found full later than now is asked for again: the clock was set back, nobody knows by how much. */
  #fullUntil(id: string): number | undefined {
    const known = this.#full.get(id)
    if (!known) return undefined
    const now = this.#now()
    if (known.since <= now && now < known.freeAt) return known.freeAt
    this.#full.delete(id)
    return undefined
  }

  #remember(id: string, freeAt: number): void {
    for (const [oldest] of this.#full) {
      if (this.#full.size < maxFull) break
      this.#full.delete(oldest)
    }
    this.#full.set(id, { since: this.#now(), freeAt })
  }

  /**
   * One at a time for each window: many attempts on one key take one connection, and those that come after it was found
   * full none. Whoever waits for one that fails fails with it, so that a locked window keeps nobody for longer.
   */
  async #inTurn(id: string, count: () => Promise<number>): Promise<number> {
    const before = this.#turns.get(id)
    const turn = before ? before.then(count) : count()
    this.#turns.set(id, turn)
    try {
      return await turn
    } finally {
      if (this.#turns.get(id) === turn) this.#turns.delete(id)
    }
  }
}
