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
  read: () => AsyncIterable<T>,
): AsyncGenerator<T> {
  const id = newId()
  let renewed = clock()
  await storage.write(async (tx) => {
    await lockTree(tx, chain)
    await tx
      .insertInto('audit_readings')
      .values({ id, chain, until: addSeconds(renewed, leaseSeconds) })
      .execute()
  })
  try {
    for await (const piece of read()) {
      yield piece
      if (clock() < addSeconds(renewed, renewSeconds)) continue
      renewed = clock()
      const until = addSeconds(renewed, leaseSeconds)
      await storage.write((tx) =>
        tx.updateTable('audit_readings').set({ until }).where('id', '=', id).execute(),
      )
    }
  } finally {
    await storage.write((tx) => tx.deleteFrom('audit_readings').where('id', '=', id).execute())
  }
}

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
