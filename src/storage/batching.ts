import { AsyncResource } from 'node:async_hooks'
import { isOutage } from './database-errors.ts'
import type { Db, Storage } from './db.ts'
import { runForService } from './fair-queue.ts'

type Waiting<Item, Outcome> = {
  item: Item
  resolve: (outcome: Outcome) => void
  reject: (error: unknown) => void
}

/** Concurrent transactions: while one commits, the next fills. */
const maxConcurrent = 2

/**
 * Groups many small writes of one kind: items that arrive while a transaction is under way share the next one. Each
 * promise resolves after the commit, with the element of `write`'s result at its index, so a reply is as durable as
 * with a write of its own. If a batch fails, each item is written alone, so one bad item does not fail the others.
 * Writes `unsynced` (see `Storage.write`). `write` follows the rules of `work` there: it may run twice and has no other
 * effects.
 */
export function batchWrites<Item, Outcome>(
  storage: Pick<Storage, 'write'>,
  write: (tx: Db, items: readonly Item[]) => Promise<readonly Outcome[]>,
  maxItems = 100,
): (item: Item) => Promise<Outcome> {
  let waiting: Waiting<Item, Outcome>[] = []
  let underWay = 0
  /** A transaction is waiting to begin: it takes every item that arrives until then. */
  let isFilling = false

  // Bound to the creating context: a caller may be inside another write, and the next write is not nested in that
  // one.
  const fill = AsyncResource.bind((): void => {
    if (isFilling || underWay >= maxConcurrent || waiting.length === 0) return
    isFilling = true
    underWay += 1
    let taken: readonly Waiting<Item, Outcome>[] | undefined
    // Taken when the transaction begins; a rerun gets the same items.
    const take = (): readonly Waiting<Item, Outcome>[] => {
      if (taken) return taken
      taken = waiting.slice(0, maxItems)
      waiting = waiting.slice(maxItems)
      isFilling = false
      fill()
      return taken
    }
    writeTogether(take).finally(() => {
      underWay -= 1
      fill()
    })
  })

  async function writeTogether(take: () => readonly Waiting<Item, Outcome>[]): Promise<void> {
    try {
      const work = (tx: Db) => write(tx, take().map(itemOf))
      const outcomes = await runForService(() => storage.write(work, { unsynced: true }))
      take().forEach(({ resolve }, n) => {
        resolve(outcomes[n]!)
      })
    } catch (error) {
      const batch = take()
      if (batch.length > 1 && !isOutage(error)) return writeEach(batch)
      for (const { reject } of batch) reject(error)
    }
  }

  async function writeEach(batch: readonly Waiting<Item, Outcome>[]): Promise<void> {
    for (const { item, resolve, reject } of batch) {
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
 * Groups many small reads of one kind: keys requested in one turn of the event loop are read together at its end, so
 * the read sees what was committed before then. `read` returns its results by key.
 */
export function batchReads<Key, Found>(
  read: (keys: readonly Key[]) => Promise<ReadonlyMap<Key, Found>>,
): (key: Key) => Promise<Found | undefined> {
  let next: { keys: Key[]; found: Promise<ReadonlyMap<Key, Found>> } | undefined

  // The read serves many callers: the service runs it for itself, not for the first of them.
  const begin = () => {
    const keys: Key[] = []
    const found = new Promise<ReadonlyMap<Key, Found>>((resolve) => {
      setImmediate(() => {
        next = undefined
        resolve(runForService(() => read(keys)))
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
