import { newId } from '../../core/new-id.ts'
import { addSeconds, clockSkew, type Instant } from '../../core/time.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { lockTree } from '../checkpoints/store.ts'
import { maxAheadSeconds } from './rules.ts'

/*
 * A chain keeps its first entries while it is read as a whole; otherwise its reader would see a gap and report
 * tampering. Both sides take the lock of the chain first, so neither misses the other.
 */

/** A reader that does not renew its lease for this long is gone. */
const leaseSeconds = maxAheadSeconds.reading
const renewSeconds = 20

/**
 * Reads a chain piece by piece while holding a read lease, which also covers queries made before the first
 * piece.
 */
export async function* withReadLease<T>(
  storage: Storage,
  chain: string,
  clock: () => Instant,
  read: (renew: () => Promise<boolean>) => AsyncIterable<T>,
): AsyncGenerator<T> {
  const id = newId()
  let renewed = clock()
  await storage.write(async (tx) => {
    await lockTree(tx, chain)
    await tx
      .insertInto('audit_readings')
      .values({ id, chain, until: addSeconds(renewed, leaseSeconds) })
      .execute()
  }, unsynced)
  /** False when the lease had expired, and entries may have been removed. */
  const renew = async () => {
    renewed = clock()
    const until = addSeconds(renewed, leaseSeconds)
    const set = (tx: Db) => tx.updateTable('audit_readings').set({ until }).where('id', '=', id)
    const { numUpdatedRows } = await storage.write((tx) => set(tx).executeTakeFirstOrThrow(), unsynced)
    return numUpdatedRows === 1n
  }
  try {
    for await (const piece of read(renew)) {
      yield piece
      if (clock() >= addSeconds(renewed, renewSeconds)) await renew()
    }
  } finally {
    await storage.write((tx) => tx.deleteFrom('audit_readings').where('id', '=', id).execute(), unsynced)
  }
}

/** A reader does not outlive a power failure. */
const unsynced = { unsynced: true }

/** Whether the chain is being read; if not, no read begins until the transaction ends. */
export async function hasReadLease(tx: Db, chain: string, now: Instant): Promise<boolean> {
  await lockTree(tx, chain)
  const rows = await tx.selectFrom('audit_readings').select('until').where('chain', '=', chain).execute()
  // A lease later than any reader writes would block retention for good.
  const latest = addSeconds(now, leaseSeconds + clockSkew)
  if (rows.some(({ until }) => until > now && until <= latest)) return true
  if (rows.length > 0) await tx.deleteFrom('audit_readings').where('chain', '=', chain).execute()
  return false
}

/** Deletes the leases of readers that ended without giving them back. */
export async function sweepReadings(db: Db, before: Instant): Promise<void> {
  await db.deleteFrom('audit_readings').where('until', '<', before).execute()
}
