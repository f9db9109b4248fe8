import { apart, attempt } from '../storage/apart.ts'
import type { Db } from '../storage/open.ts'
import { reasonOf } from '../storage/set-aside.ts'

/** Rows of one statement. */
const group = 100

/** What a log says in the place of an entry that the database did not take. */
export const lostMessage = (error: unknown): string => `An entry could not be stored: ${reasonOf(error)}`

/**
 * Stores what an agent hands in; gives how much that was. One that cannot be stored leaves a line in its place, and the
 * others are stored all the same: refused as a whole they would be handed in again for ever.
 */
export async function insertLogs<Log>(
  db: Db,
  logs: readonly Log[],
  insert: (some: readonly Log[]) => Promise<number>,
  instead: (log: Log, message: string) => Log,
): Promise<number> {
  let count = 0
  for (let at = 0; at < logs.length; at += group) {
    const { done, refused } = await apart(logs.slice(at, at + group), (some) =>
      attempt(db, () => insert(some)),
    )
    for (const { item, error } of refused) {
      done.push(await attempt(db, () => insert([instead(item, lostMessage(error))])))
    }
    count += done.reduce((sum, one) => sum + one, 0)
  }
  return count
}
