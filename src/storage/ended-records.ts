import { writeInChunks } from './bisect-writes.ts'
import type { Db, Storage } from './db.ts'

/** A record that was deleted; `org_id` is null for one that belongs to no organization. */
export type Deleted = { id: string; org_id: string | null; name: string }

/** Rows of one transaction: this bounds how long other writes wait, and the names in one audit entry. */
export const deletionBatch = 100

/** Records of one kind whose time has passed. */
export type EndedRecords = {
  /** Finds some that are due, other than these. */
  find(except: readonly string[]): Promise<readonly { id: string }[]>
  /** How many it finds at once, where each takes more than its row; otherwise `deletionBatch`. */
  batch?: number
  /** Deletes those of them that are still due. */
  remove(tx: Db, ids: readonly string[]): Promise<readonly Deleted[]>
}

/** Deletes them beside running writers; `record` is called in each transaction. */
export const deleteRecords = (
  storage: Storage,
  { find, remove, batch = deletionBatch }: EndedRecords,
  record: (tx: Db, deleted: readonly Deleted[]) => Promise<void>,
): Promise<void> => writeInChunks(storage, find, async (tx, ids) => record(tx, await remove(tx, ids)), batch)
