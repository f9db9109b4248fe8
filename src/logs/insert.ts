import { withSavepoint, writeBisecting } from '../storage/bisect-writes.ts'
import { failureReason } from '../storage/dead-letters.ts'
import type { Db } from '../storage/open.ts'

/** Rows of one statement. */
const group = 100

/** What a log says in the place of an entry that the database did not take. */
const lostMessage = (error: unknown): string => `An entry could not be stored: ${failureReason(error)}`

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
    const { done, refused } = await writeBisecting(logs.slice(at, at + group), (some) =>
      withSavepoint(db, () => insert(some)),
    )
    for (const { item, error } of refused) {
      done.push(await withSavepoint(db, () => insert([instead(item, lostMessage(error))])))
    }
    results.push(...done)
  }
  return results
}
