import { newId } from '../../core/new-id.ts'
import { addSeconds, clockSkew, type Instant } from '../../core/time.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { lockTree } from '../checkpoints/store.ts'
import { maxAheadSeconds } from './rules.ts'

/*
 * A chain that is being read whole keeps its beginning meanwhile, or its reader would see a gap and call it
 * tampering. Both sides take the lock of the chain first, so neither misses the other.
 */

/** A reader that says nothing for so long is gone. */
const leaseSeconds = maxAheadSeconds.reading
const renewSeconds = 20

/** Reads a chain piece by piece, with what was asked before the first piece. */
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

/** Whether somebody reads the chain; if nobody does, nobody begins until the transaction ends. */
export async function hasReadLease(tx: Db, chain: string, now: Instant): Promise<boolean> {
  await lockTree(tx, chain)
  const rows = await tx.selectFrom('audit_readings').select('until').where('chain', '=', chain).execute()
  // A later one than any reader writes would keep the chain from retention for good.
  const latest = addSeconds(now, leaseSeconds + clockSkew)
  if (rows.some(({ until }) => until > now && until <= latest)) return true
  if (rows.length > 0) await tx.deleteFrom('audit_readings').where('chain', '=', chain).execute()
  return false
}
