import { AsyncLocalStorage } from 'node:async_hooks'
import { addCount } from '../core/counts.ts'
import { Problem } from '../core/errors.ts'
import { isAsyncContextCheap } from './nested-writes.ts'

/** For whom the database works, from the largest group to the single caller: partner, organization, device. */
export type Party = readonly [group: string, ...string[]]

/** The service itself: its loops, and reads that it does for many callers at once. */
const service: Party = ['service']

const current = isAsyncContextCheap ? new AsyncLocalStorage<Party>() : undefined

/** Runs `work`, whose reads and writes wait for the turns of this party. */
export const onBehalfOf = <T>(party: Party, work: () => T): T => (current ? current.run(party, work) : work())

/** Runs `work` for the service itself, whoever caused it. */
export const onOwnBehalf = <T>(work: () => T): T => onBehalfOf(service, work)

export const currentParty = (): Party => current?.getStore() ?? service

/**
 * Items that wait, in the order in which their parties take turns: the groups one after the other, and within a group its
 * members in the same way. Whoever has thousands that wait delays the others by one. The service itself comes first.
 */
export class FairQueue<Item> {
  readonly #root = new Branch<Item>()
  #size = 0

  get size(): number {
    return this.#size
  }

  push(party: Party, item: Item): void {
    let branch = this.#root
    for (const name of party) branch = branch.child(name)
    branch.items.push(item)
    this.#size += 1
  }

  /** The next, of those that may have one: groups are of level 0, their members of level 1. */
  shift(mayRun: MayRun = () => true): Item | undefined {
    const item = this.#root.shift(mayRun, 0, service[0])
    if (item !== undefined) this.#size -= 1
    return item
  }

  /** For one that waits no longer. */
  remove(party: Party, item: Item): void {
    if (this.#root.remove(party, item)) this.#size -= 1
  }
}

type MayRun = (name: string, level: number) => boolean

class Branch<Item> {
  readonly items: Item[] = []
  /** Of those with something that waits; whose turn it is comes first. */
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

  /** Whoever had a turn goes to the end of the line. */
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
 * So many at once, of which one group has at most half: a tenant whose transactions wait for each other's locks leaves
 * the others their connections.
 */
export class FairSlots {
  readonly #atOnce: number
  readonly #perGroup: number
  readonly #waitMs: number
  readonly #queue = new FairQueue<Waiting>()
  /** Of groups that have one. */
  readonly #byGroup = new Map<string, number>()
  #taken = 0
  #given = 0

  constructor(atOnce: number, waitMs: number) {
    this.#atOnce = atOnce
    // Two at least: what is done in a transaction may need a read besides.
    this.#perGroup = Math.max(2, Math.floor(atOnce / 2))
    this.#waitMs = waitMs
  }

  /**
   * Takes one; the result gives it back.
   * @throws unavailable when the turn of this party does not come, an outage when nobody's did
   */
  async take(): Promise<() => void> {
    const party = currentParty()
    const [group] = party
    if (this.#taken < this.#atOnce && this.#mayRun(group)) this.#count(group, 1)
    else await this.#turn(party)
    let isTaken = true
    return () => {
      if (isTaken) this.#give(group)
      isTaken = false
    }
  }

  #turn(party: Party): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const given = this.#given
    const late = setTimeout(() => {
      this.#queue.remove(party, waiting)
      reject(
        this.#given > given
          ? new Problem('unavailable', 'The service has too many requests under way', { retryAfter: 5 })
          : new Error('timeout exceeded when trying to connect'),
      )
    }, this.#waitMs)
    const go = () => {
      clearTimeout(late)
      resolve()
    }
    const waiting = { group: party[0], go }
    this.#queue.push(party, waiting)
    return promise
  }

  #give(group: string): void {
    this.#given += 1
    this.#count(group, -1)
    const next = this.#queue.shift(this.#mayRun)
    if (!next) return
    this.#count(next.group, 1)
    next.go()
  }

  readonly #mayRun = (group: string, level = 0): boolean =>
    level > 0 || group === service[0] || (this.#byGroup.get(group) ?? 0) < this.#perGroup

  #count(group: string, change: 1 | -1): void {
    this.#taken += change
    addCount(this.#byGroup, group, change)
  }
}
