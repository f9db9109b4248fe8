import { withSavepoint, writeBisecting } from '../storage/bisect-writes.ts'
import { failureReason } from '../storage/dead-letters.ts'
import type { Db } from '../storage/open.ts'

/** Rows of one statement. */
const group = 100

/** Message of the placeholder for an entry that the database refused. */
const lostMessage = (error: unknown): string => `An entry could not be stored: ${failureReason(error)}`

/**
 * Stores the entries that an agent submits; returns the result of each statement. An entry that cannot be
 * stored is replaced by a placeholder and the others are stored: refused as a whole, the agent would submit
 * them again forever.
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
