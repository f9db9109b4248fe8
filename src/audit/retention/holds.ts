import { everything } from '../../core/scope.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { sealFor } from '../outbox.ts'
import { entriesIn } from '../store.ts'
import { getPolicy } from './store.ts'

/** Under which names a chain tells of its own hold. */
export const holdSet = 'audit.hold.set'
export const holdRelease = 'audit.hold.release'

/**
 * Whether the hold of a chain is gone although nobody released it: whoever holds the database would have the service itself
 * delete, and sign for, what is to be kept. While there is a hold nothing is deleted, so the chain says whether there is one.
 */
export async function isHoldTaken(storage: Storage, chain: string): Promise<boolean> {
  const isHeld = async () => (await getPolicy(storage.read, everything, chain)).hold !== null
  if (await isHeld()) return false
  await sealFor(storage, everything, chain)
  // One that was set in the meantime is no fault.
  return (await isToldHeld(storage.heavy, chain)) && !(await isHeld())
}

/** What the chain said of it last. */
async function isToldHeld(db: Db, chain: string): Promise<boolean> {
  const last = await entriesIn(db, everything)
    .select('action')
    .where('chain', '=', chain)
    .where('action', 'in', [holdSet, holdRelease])
    .where('result', '=', 'success')
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return last?.action === holdSet
}
