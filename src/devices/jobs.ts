import { addSeconds, type Instant } from '../core/time.ts'
import { writeLeavingLocked } from '../storage/bisect-writes.ts'
import type { Db, Storage } from '../storage/open.ts'
import { emitStatusChanges, emitUpdated, type StatusChange } from './events.ts'
import {
  endMaintenance,
  failLateUpdates,
  findOverdue,
  type LivenessCutoff,
  markOffline,
  markWatchdogsOffline,
} from './liveness.ts'

/** Ids read at a time, and rows of one write: the write bounds how long heartbeats wait. */
const readLimit = 5000
const writeLimit = 500

/**
 * Marks devices offline that have been silent or updating for too long, and silent watchdogs, and ends maintenance
 * whose time is over. Several processes may do so concurrently: each device changes once and emits one event.
 */
export async function checkLiveness(
  storage: Storage,
  { offlineAfterSeconds }: { offlineAfterSeconds: number },
  now: Instant,
): Promise<StatusChange[]> {
  const due: LivenessCutoff = { now, before: addSeconds(now, -offlineAfterSeconds) }
  const moved: StatusChange[] = []
  const move = (change: typeof markOffline) => async (tx: Db, ids: string[]) => {
    const part = await change(tx, ids, due)
    await emitStatusChanges(tx, part, now)
    return part
  }
  const markWatchdogs = async (tx: Db, ids: string[]) => {
    const part = await markWatchdogsOffline(tx, ids, due)
    for (const device of part) await emitUpdated(tx, device, { watchdogStatus: 'offline' }, now)
    return part
  }
  const stuck = new Map<string, unknown>()
  for (let last: string | undefined = ''; last !== undefined; ) {
    const { silent, late, maintained, unwatched, next } = await findOverdue(
      storage.heavy,
      due,
      last,
      readLimit,
    )
    moved.push(...(await inParts(storage, silent, move(markOffline), stuck)))
    moved.push(...(await inParts(storage, late, move(failLateUpdates), stuck)))
    moved.push(...(await inParts(storage, maintained, move(endMaintenance), stuck)))
    await inParts(storage, unwatched, markWatchdogs, stuck)
    last = next
  }
  const [failure] = stuck.values()
  if (failure !== undefined) throw failure
  return moved
}

/** `stuck` collects the devices that could not be changed, with the errors; the next run tries them again. */
async function inParts<T>(
  storage: Storage,
  ids: string[],
  change: (tx: Db, ids: string[]) => Promise<T[]>,
  stuck: Map<string, unknown>,
): Promise<T[]> {
  const changed: T[] = []
  for (let at = 0; at < ids.length; at += writeLimit) {
    const part = ids.slice(at, at + writeLimit)
    // A change lost in a crash is found again.
    const options = { unsynced: true }
    const { done, refused } = await writeLeavingLocked(
      storage,
      part,
      (tx, some) => change(tx, [...some]),
      options,
    )
    changed.push(...done.flat())
    for (const { item, error } of refused) stuck.set(item, error)
  }
  return changed
}
