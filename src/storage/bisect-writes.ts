import { sql } from 'kysely'
import { deferredBy } from './before-commit.ts'
import { isLockTimeout, isOutage, isTransient } from './database-errors.ts'
import type { Db, Storage, WriteOptions } from './db.ts'
import { isPostgres } from './query/prepared.ts'

/** An item that could not be written, and the error. */
export type FailedItem<T> = { item: T; error: unknown }

/** How long a part of a batch with a locked row waits for a lock, and how often in one call. */
const lockMs = 200
const maxLockWaits = 50

type Writer = Pick<Storage, 'write'>
/** One transaction; `options` are for `Storage.write`. */
type Write<T, R> = (some: readonly T[], options: WriteOptions) => Promise<R>
/** What one transaction changes. */
type Change<T, R> = (tx: Db, some: readonly T[]) => Promise<R>

/**
 * Writes many items together. If that fails, it tries each half, recursively, so one bad item does not hold up the
 * others. An outage or a deadlock is thrown at once. `locked`: items whose row another transaction keeps locked are refused as well,
 * for callers that try refused items again later. After `maxLockWaits` items are no longer taken apart for a locked row.
 */
export async function writeBisecting<T, R>(
  items: readonly T[],
  write: Write<T, R>,
  { locked = false, waits = { left: maxLockWaits } }: { locked?: boolean; waits?: { left: number } } = {},
): Promise<{ done: R[]; refused: FailedItem<T>[] }> {
  if (items.length === 0) return { done: [], refused: [] }
  try {
    const isTakenApart = waits.left < maxLockWaits
    return { done: [await write(items, isTakenApart ? { lockMs } : {})], refused: [] }
  } catch (error) {
    const isLocked = locked && isLockTimeout(error)
    // A deadlock within a transaction is for its own retry, and no fault of an item.
    if ((isOutage(error) && !isLocked) || isTransient(error)) throw error
    if (isLocked) waits.left -= 1
    if (items.length === 1 || (isLocked && waits.left <= 0)) {
      return { done: [], refused: items.map((item) => ({ item, error })) }
    }
    const middle = items.length >> 1
    const first = await writeBisecting(items.slice(0, middle), write, { locked, waits })
    const second = await writeBisecting(items.slice(middle), write, { locked, waits })
    return { done: [...first.done, ...second.done], refused: [...first.refused, ...second.refused] }
  }
}

/** The same with transactions of the storage, for callers that try refused items, and so those with a locked row, again later. */
export const writeLeavingLocked = <T, R>(
  storage: Writer,
  items: readonly T[],
  change: Change<T, R>,
  options: WriteOptions = {},
): Promise<{ done: R[]; refused: FailedItem<T>[] }> =>
  writeBisecting(
    items,
    (some, hurried) => storage.write((tx) => change(tx, some), { ...options, ...hurried }),
    { locked: true },
  )

/**
 * Writes all items, `batch` per transaction. Items that cannot be written go to `requeue`.
 * @throws the first item's error after all others are written, or an outage at once
 */
export async function drain<T>(
  storage: Writer,
  items: readonly T[],
  batch: number,
  change: Change<T, unknown>,
  requeue: (some: readonly T[]) => void,
): Promise<void> {
  const failures: FailedItem<T>[] = []
  for (let at = 0; at < items.length; at += batch) {
    try {
      const { refused } = await writeLeavingLocked(storage, items.slice(at, at + batch), change)
      requeue(refused.map(({ item }) => item))
      failures.push(...refused)
    } catch (error) {
      requeue(items.slice(at))
      throw error
    }
  }
  if (failures[0]) throw failures[0].error
}

/**
 * Changes the rows that `find` returns, `batch` at a time, until none are left or as many have failed. `find` excludes
 * the ids that failed. Unsynced: a change that is lost in a crash is found again.
 * @throws the first error, after the others are written
 */
export async function writeInChunks(
  storage: Writer,
  find: (except: readonly string[]) => Promise<readonly { id: string }[]>,
  change: Change<string, unknown>,
  batch: number,
): Promise<void> {
  const failures = new Map<string, unknown>()
  for (;;) {
    const ids = (await find([...failures.keys()])).map(({ id }) => id)
    const { refused } = await writeLeavingLocked(storage, ids, change, { unsynced: true })
    for (const { item, error } of refused) failures.set(item, error)
    if (ids.length < batch || failures.size >= batch) break
  }
  const [failure] = failures.values()
  if (failure !== undefined) throw failure
}

/** Runs `work` on each item in order, even after a failure, then throws the first error. */
export async function forEachSettled<T>(
  items: Iterable<T>,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const failures: unknown[] = []
  for (const item of items) {
    try {
      await work(item)
    } catch (error) {
      failures.push(error)
    }
  }
  if (failures.length > 0) throw failures[0]
}

/**
 * Runs one statement whose failure does not end the transaction: SQLite undoes only that statement by itself,
 * Postgres needs a savepoint.
 */
export const withSavepoint = <T>(tx: Db, statement: () => Promise<T>): Promise<T> =>
  isPostgres(tx.getExecutor()) ? inNestedTransaction(tx, statement) : statement()

/** Runs several statements: if one fails, all are undone with what they deferred, and the transaction goes on. */
export async function inNestedTransaction<T>(tx: Db, work: () => Promise<T>): Promise<T> {
  const deferred = deferredBy(tx)
  const size = deferred?.size ?? 0
  await sql`savepoint nested`.execute(tx)
  try {
    const value = await work()
    await sql`release savepoint nested`.execute(tx)
    return value
  } catch (error) {
    if (isOutage(error)) throw error
    deferred?.cut(size)
    await sql`rollback to savepoint nested`.execute(tx)
    await sql`release savepoint nested`.execute(tx)
    throw error
  }
}
