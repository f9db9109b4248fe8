import type { Clock } from '../core/time.ts'
import { apart } from '../storage/apart.ts'
import type { Storage } from '../storage/open.ts'
import {
  type Claimed,
  claimDue,
  findDifference,
  isGroupDue,
  listDue,
  settleClaimed,
  toDynamic,
} from './dynamic.ts'

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
  const { done, refused } = await apart(await listDue(storage.read, now, batch), (some) =>
    storage.write((tx) => claimDue(tx, some, now), { unsynced: true }),
  )
  const groups = done.flat()
  const failures = refused.map(({ error }) => error)
  // One after the other, and one that fails must not keep the others from their turn.
  for (const group of groups) {
    await refreshOne(storage, group, now, clock).catch((error: unknown) => failures.push(error))
  }
  if (failures.length > 0) throw failures[0]
  return groups.length > 0
}

/** @throws why some devices could not be put in or out, when all others are */
async function refreshOne(
  storage: Storage,
  claimed: Claimed,
  claimedAt: string,
  clock: Clock,
): Promise<void> {
  const group = toDynamic(claimed)
  const { missing, surplus } = await findDifference(storage.heavy, group, claimedAt)
  const moves = [
    ...missing.map((id) => ({ id, isFound: true })),
    ...surplus.map((id) => ({ id, isFound: false })),
  ]
  const settle = (some: readonly (typeof moves)[number][]) => {
    const part = {
      missing: some.filter(({ isFound }) => isFound).map(({ id }) => id),
      surplus: some.filter(({ isFound }) => !isFound).map(({ id }) => id),
    }
    return storage.write((tx) => settleClaimed(tx, group.id, part, { claimedAt, now: clock() }))
  }
  const { refused } = await apart(moves, settle)
  if (refused.length > 0) throw refused[0]!.error
}
