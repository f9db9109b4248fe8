import { sql } from 'kysely'
import { isOutage } from './database-errors.ts'
import type { Db } from './db.ts'
import { isPostgres } from './query/prepared.ts'

/** One that could not be written, and why. */
export type FailedItem<T> = { item: T; error: unknown }

/**
 * Writes many together. Where that fails, halves of them are tried, and halves of those: one that cannot be written
 * holds up no other. A database that is away is nobody's fault, and ends it. `write` is one transaction.
 */
export async function writeBisecting<T, R>(
  items: readonly T[],
  write: (some: readonly T[]) => Promise<R>,
): Promise<{ done: R[]; refused: FailedItem<T>[] }> {
  if (items.length === 0) return { done: [], refused: [] }
  try {
    return { done: [await write(items)], refused: [] }
  } catch (error) {
    if (isOutage(error)) throw error
    if (items.length === 1) return { done: [], refused: [{ item: items[0]!, error }] }
    const middle = items.length >> 1
    const first = await writeBisecting(items.slice(0, middle), write)
    const second = await writeBisecting(items.slice(middle), write)
    return { done: [...first.done, ...second.done], refused: [...first.refused, ...second.refused] }
  }
}

/**
 * Writes all of these, so many in a transaction. What cannot be written is given back.
 * @throws why it cannot: behind all others, or at once where the database is away
 */
export async function drain<T>(
  items: readonly T[],
  batch: number,
  write: (some: readonly T[]) => Promise<unknown>,
  giveBack: (some: readonly T[]) => void,
): Promise<void> {
  const failures: FailedItem<T>[] = []
  for (let at = 0; at < items.length; at += batch) {
    try {
      const { refused } = await writeBisecting(items.slice(at, at + batch), write)
      giveBack(refused.map(({ item }) => item))
      failures.push(...refused)
    } catch (error) {
      giveBack(items.slice(at))
      throw error
    }
  }
  if (failures[0]) throw failures[0].error
}

/**
 * Writes what is found, so many at a time, until no more is. `find` leaves those out that could not be written.
 * @throws why some could not be, when all others are
 */
export async function writeInChunks(
  find: (except: readonly string[]) => Promise<readonly { id: string }[]>,
  write: (ids: readonly string[]) => Promise<unknown>,
  batch: number,
): Promise<void> {
  const failures = new Map<string, unknown>()
  for (;;) {
    const ids = (await find([...failures.keys()])).map(({ id }) => id)
    const { refused } = await writeBisecting(ids, write)
    for (const { item, error } of refused) failures.set(item, error)
    if (ids.length < batch || failures.size >= batch) break
  }
  const [failure] = failures.values()
  if (failure !== undefined) throw failure
}

/** Does one after the other, also behind one that fails; then throws what failed first. */
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
 * Runs one statement of a transaction that goes on when it fails: SQLite undoes the statement alone by itself, Postgres
 * does when it is told to before.
 */
export async function withSavepoint<T>(tx: Db, statement: () => Promise<T>): Promise<T> {
  if (!isPostgres(tx.getExecutor())) return statement()
  await sql`savepoint attempt`.execute(tx)
  try {
    const value = await statement()
    await sql`release savepoint attempt`.execute(tx)
    return value
  } catch (error) {
    if (!isOutage(error)) await sql`rollback to savepoint attempt; release savepoint attempt`.execute(tx)
    throw error
  }
}
