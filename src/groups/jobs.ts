import type { Clock } from '../core/time.ts'
import type { Storage } from '../storage/open.ts'
import { claimDue, type Dynamic, findDifference, isGroupDue, settleClaimed } from './dynamic.ts'

const batch = 50

/**
 * Brings dynamic groups up to date whose filter was not asked for a minute; false when there were none. Several
 * processes may do so at once. The filters are asked where it holds up nobody, and only a group that changed
 * is written to.
 */
export async function refreshDue({ storage, clock }: { storage: Storage; clock: Clock }): Promise<boolean> {
  const now = clock()
  if (!(await isGroupDue(storage.read, now))) return false
  // What is lost of it with the power is asked again.
  const groups = await storage.write((tx) => claimDue(tx, now, batch), { unsynced: true })
  let failure: unknown
  // One after the other, and one that fails must not keep the others from their turn.
  for (const group of groups) {
    await refreshOne(storage, group, now, clock).catch((error: unknown) => {
      failure ??= error
    })
  }
  if (failure !== undefined) throw failure
  return groups.length > 0
}

async function refreshOne(storage: Storage, group: Dynamic, claimedAt: string, clock: Clock): Promise<void> {
  const difference = await findDifference(storage.heavy, group, claimedAt)
  if (difference.missing.length + difference.surplus.length === 0) return
  await storage.write((tx) => settleClaimed(tx, group.id, difference, { claimedAt, now: clock() }))
}
