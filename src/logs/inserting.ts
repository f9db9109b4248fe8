import { apart, attempt } from '../storage/apart.ts'
import type { Db } from '../storage/open.ts'
import { reasonOf } from '../storage/set-aside.ts'

/** Rows of one statement. */
const group = 100

/** What a log says in the place of an entry that the database did not take. */
export const lostMessage = (error: unknown): string => `An entry could not be stored: ${reasonOf(error)}`

/**
 * Stores what an agent hands in; gives what each statement gave. One that cannot be stored leaves a line in its place, and
 * the others are stored all the same: refused as a whole they would be handed in again for ever.
 */
export async function insertLogs<Log, Result>(
  db: Db,
  logs: readonly Log[],
  insert: (some: readonly Log[]) => Promise<Result>,
  instead: (log: Log, message: string) => Log,
): Promise<Result[]> {
  const results: Result[] = []
  for (let at = 0; at < logs.length; at += group) {
    const { done, refused } = await apart(logs.slice(at, at + group), (some) =>
      attempt(db, () => insert(some)),
    )
    for (const { item, error } of refused) {
      done.push(await attempt(db, () => insert([instead(item, lostMessage(error))])))
    }
    results.push(...done)
  }
  return results
}
