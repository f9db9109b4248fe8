import { AsyncLocalStorage } from 'node:async_hooks'
import { addCount, countOf } from '../core/counts.ts'
import { Problem } from '../core/errors.ts'
import { isAsyncContextCheap } from './nested-writes.ts'
import { inTrace } from './trace.ts'

/** Who database work is done for, from the largest group to the single caller: partner, organization, device. */
export type FairShareKey = readonly [group: string, ...string[]]

/** The service itself: its background loops, and reads shared by many callers. */
const service: FairShareKey = ['service']

const current = isAsyncContextCheap ? new AsyncLocalStorage<FairShareKey>() : undefined

/** Runs `work`; its reads and writes are queued under this key. */
export const withFairShareKey = <T>(key: FairShareKey, work: () => T): T =>
  current ? current.run(key, work) : work()

/** Runs `work` for the service itself, regardless of who caused it: it is not part of their trace either. */
export const runForService = <T>(work: () => T): T =>
  inTrace(undefined, () => withFairShareKey(service, work))

export const currentFairShareKey = (): FairShareKey => current?.getStore() ?? service

/**
 * Waiting items, in the order in which their keys take turns: first the groups, then the members within each group.
 * A key with thousands of waiting items delays each other key by one item. The service itself comes first.
 */
export class FairQueue<Item> {
  readonly #root = new Branch<Item>()
  #size = 0

  get size(): number {
    return this.#size
  }

  push(key: FairShareKey, item: Item): void {
    let branch = this.#root
    for (const name of key) branch = branch.child(name)
    branch.items.push(item)
    this.#size += 1
  }

  /** Removes and returns the next item of a key that `mayRun` allows: groups are level 0, their members level 1. */
  shift(mayRun: MayRun = () => true): Item | undefined {
    const item = this.#root.shift(mayRun, 0, service[0])
    if (item !== undefined) this.#size -= 1
    return item
  }

  /** Removes an item that no longer waits. */
  remove(key: FairShareKey, item: Item): void {
    if (this.#root.remove(key, item)) this.#size -= 1
  }
}

type MayRun = (name: string, level: number) => boolean

class Branch<Item> {
  readonly items: Item[] = []
  /** Only branches with waiting items; the one whose turn is next comes first. */
  readonly #children = new Map<string, Branch<Item>>()

  get isEmpty(): boolean {
    return this.items.length === 0 && this.#children.size === 0
  }

  child(name: string): Branch<Item> {
    let child = this.#children.get(name)
    if (!child) {
      child = new Branch()
      this.#children.set(name, child)
    }
    return child
  }

  shift(mayRun: MayRun, level: number, first?: string): Item | undefined {
    if (this.items.length > 0) return this.items.shift()
    if (first !== undefined) {
      const item = this.#shiftOf(first, mayRun, level)
      if (item !== undefined) return item
    }
    for (const name of this.#children.keys()) {
      const item = this.#shiftOf(name, mayRun, level)
      if (item !== undefined) return item
    }
    return undefined
  }

  /** Moves the child that had its turn to the end of the line. */
  #shiftOf(name: string, mayRun: MayRun, level: number): Item | undefined {
    const child = this.#children.get(name)
    const item = child && mayRun(name, level) ? child.shift(mayRun, level + 1) : undefined
    if (!child || item === undefined) return undefined
    this.#children.delete(name)
    if (!child.isEmpty) this.#children.set(name, child)
    return item
  }

  remove([name, ...rest]: readonly string[], item: Item): boolean {
    if (name === undefined) {
      const at = this.items.indexOf(item)
      if (at !== -1) this.items.splice(at, 1)
      return at !== -1
    }
    const child = this.#children.get(name)
    if (!child?.remove(rest, item)) return false
    if (child.isEmpty) this.#children.delete(name)
    return true
  }
}

type Waiting = { group: string; go(): void }

/**
 * A semaphore with a fair queue. Each group but the service itself gets at most half of the slots: a tenant whose
 * transactions wait for each other's locks must not occupy all connections.
 */
export class FairSemaphore {
  readonly #atOnce: number
  readonly #perGroup: number
  readonly #waitMs: number
  readonly #queue = new FairQueue<Waiting>()
  /** Slots in use, by group. */
  readonly #byGroup = new Map<string, number>()
  #taken = 0
  #released = 0

  constructor(atOnce: number, waitMs: number) {
    this.#atOnce = atOnce
    // At least two: work inside a transaction may need a read beside it.
    this.#perGroup = Math.max(2, Math.floor(atOnce / 2))
    this.#waitMs = waitMs
  }

  /**
   * Waits for a slot; the returned function releases it.
   * @throws unavailable if none was free for this key in time, an outage if no slot at all was released meanwhile
   */
  async take(): Promise<() => void> {
    const key = currentFairShareKey()
    const [group] = key
    if (this.#taken < this.#atOnce && this.#mayRun(group)) this.#count(group, 1)
    else await this.#waitTurn(key)
    let isTaken = true
    return () => {
      if (isTaken) this.#release(group)
      isTaken = false
    }
  }

  /** How many wait for a slot. */
  get waiting(): number {
    return this.#queue.size
  }

  #waitTurn(key: FairShareKey): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const released = this.#released
    const late = setTimeout(() => {
      this.#queue.remove(key, waiting)
      reject(
        this.#released > released
          ? new Problem('unavailable', 'The service has too many requests under way', { retryAfter: 5 })
          : new Error('timeout exceeded when trying to connect'),
      )
    }, this.#waitMs)
    const go = () => {
      clearTimeout(late)
      resolve()
    }
    const waiting = { group: key[0], go }
    this.#queue.push(key, waiting)
    return promise
  }

  #release(group: string): void {
    this.#released += 1
    this.#count(group, -1)
    const next = this.#queue.shift(this.#mayRun)
    if (!next) return
    this.#count(next.group, 1)
    next.go()
  }

  readonly #mayRun = (group: string, level = 0): boolean =>
    level > 0 || group === service[0] || countOf(this.#byGroup, group) < this.#perGroup

  #count(group: string, change: 1 | -1): void {
    this.#taken += change
    addCount(this.#byGroup, group, change)
  }
}
