import { type Instant, later } from '../core/time.ts'
import type { Db, Storage } from '../storage/open.ts'
import { type Moved, tellMoved } from './events.ts'
import { type Due, endMaintenance, findDue, markOffline } from './liveness.ts'

/** Ids held at a time, and rows of one write: heartbeats wait for no longer than that. */
const found = 5000
const written = 500

/**
 * Who has been silent for too long is offline, and whose maintenance is over is online or offline again. Any
 * number of processes may do so at once: each device moves once, and webhooks hear of it once.
 */
export async function checkLiveness(
  storage: Storage,
  { offlineAfterSeconds }: { offlineAfterSeconds: number },
  now: Instant,
): Promise<Moved[]> {
  const due: Due = { now, before: later(now, -offlineAfterSeconds) }
  const moved: Moved[] = []
  for (;;) {
    const { silent, maintained } = await findDue(storage.heavy, due, found)
    moved.push(...(await inParts(storage, silent, now, (tx, ids) => markOffline(tx, ids, due))))
    moved.push(...(await inParts(storage, maintained, now, (tx, ids) => endMaintenance(tx, ids, due))))
    if (silent.length + maintained.length < found) return moved
  }
}

async function inParts(
  storage: Storage,
  ids: string[],
  now: Instant,
  change: (tx: Db, ids: string[]) => Promise<Moved[]>,
): Promise<Moved[]> {
  const moved: Moved[] = []
  for (let at = 0; at < ids.length; at += written) {
    const some = ids.slice(at, at + written)
    const work = async (tx: Db) => {
      const part = await change(tx, some)
      await tellMoved(tx, part, now)
      return part
    }
    // What a crash undoes is found again.
    moved.push(...(await storage.write(work, { unsynced: true })))
  }
  return moved
}
