import { AsyncResource } from 'node:async_hooks'
import { isOutage } from './database-errors.ts'
import type { Db, Storage } from './db.ts'

type Waiting<Item, Outcome> = {
  item: Item
  resolve: (outcome: Outcome) => void
  reject: (error: unknown) => void
}

/** Transactions under way at once: while one is committed the next is filled. */
const lanes = 2

/**
 * Many small writes of one kind as one: those that come in while a transaction is on its way share the next. Each
 * resolves once it is committed, with what `write` gave in its place, so what was answered is as safe as if it had been
 * written by itself. Where they fail together each is tried alone: one that cannot be written spoils no other.
 * Unsynced, as telemetry is (see `Storage.write`); `write` keeps the rules of its `work`.
 */
export function batchWrites<Item, Outcome>(
  storage: Pick<Storage, 'write'>,
  write: (tx: Db, items: readonly Item[]) => Promise<readonly Outcome[]>,
  most = 100,
): (item: Item) => Promise<Outcome> {
  let waiting: Waiting<Item, Outcome>[] = []
  let underWay = 0
  /** One has not begun: it takes all that come in until then. */
  let isFilling = false

  // Called from within a write as well, of which the next one is no part.
  const fill = AsyncResource.bind((): void => {
    if (isFilling || underWay >= lanes || waiting.length === 0) return
    isFilling = true
    underWay += 1
    let taken: readonly Waiting<Item, Outcome>[] | undefined
    // Taken when it begins, and the same when it has to be run again.
    const take = (): readonly Waiting<Item, Outcome>[] => {
      if (taken) return taken
      taken = waiting.slice(0, most)
      waiting = waiting.slice(most)
      isFilling = false
      fill()
      return taken
    }
    together(take).finally(() => {
      underWay -= 1
      fill()
    })
  })

  async function together(take: () => readonly Waiting<Item, Outcome>[]): Promise<void> {
    try {
      const outcomes = await storage.write((tx) => write(tx, take().map(itemOf)), { unsynced: true })
      take().forEach(({ resolve }, n) => {
        resolve(outcomes[n]!)
      })
    } catch (error) {
      const those = take()
      if (those.length > 1 && !isOutage(error)) return alone(those)
      for (const { reject } of those) reject(error)
    }
  }

  async function alone(those: readonly Waiting<Item, Outcome>[]): Promise<void> {
    for (const { item, resolve, reject } of those) {
      await storage
        .write((tx) => write(tx, [item]), { unsynced: true })
        .then(([outcome]) => resolve(outcome!), reject)
    }
  }

  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject })
      fill()
    })
}

const itemOf = <Item>({ item }: { item: Item }): Item => item

/**
 * Many small reads of one kind as one: what is asked for in a turn of the event loop is read at its end, and so is what
 * was committed by then. `read` gives what it found by the keys.
 */
export function batchReads<Key, Found>(
  read: (keys: readonly Key[]) => Promise<ReadonlyMap<Key, Found>>,
): (key: Key) => Promise<Found | undefined> {
  let next: { keys: Key[]; found: Promise<ReadonlyMap<Key, Found>> } | undefined

  const begin = () => {
    const keys: Key[] = []
    const found = new Promise<ReadonlyMap<Key, Found>>((resolve) => {
      setImmediate(() => {
        next = undefined
        resolve(read(keys))
      })
    })
    return { keys, found }
  }

  return (key) => {
    next ??= begin()
    next.keys.push(key)
    return next.found.then((found) => found.get(key))
  }
}
