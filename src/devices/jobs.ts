import { type Instant, later } from '../core/time.ts'
import type { Db, Storage } from '../storage/open.ts'
import { endMaintenance, findMaintained, findSilent, type Moved, markOffline } from './liveness.ts'

/** Ids held at a time, and rows of one write: heartbeats wait for no longer than that. */
const found = 20_000
const written = 500

/**
 * Who has been silent for too long is offline, and whose maintenance is over is online or offline again. Any
 * number of processes may do so at once: each device moves once, and only whoever moved it is told.
 */
export async function checkLiveness(
  storage: Storage,
  { offlineAfterSeconds }: { offlineAfterSeconds: number },
  now: Instant,
): Promise<Moved[]> {
  const before = later(now, -offlineAfterSeconds)
  const offline = await move(
    storage,
    (db) => findSilent(db, before, found),
    (tx, ids) => markOffline(tx, ids, before),
  )
  const ended = await move(
    storage,
    (db) => findMaintained(db, now, found),
    (tx, ids) => endMaintenance(tx, ids, { now, before }),
  )
  return [...offline, ...ended]
}

async function move(
  storage: Storage,
  find: (db: Db) => Promise<string[]>,
  change: (tx: Db, ids: string[]) => Promise<Moved[]>,
): Promise<Moved[]> {
  const moved: Moved[] = []
  for (;;) {
    const ids = await find(storage.heavy)
    for (let at = 0; at < ids.length; at += written) {
      const part = ids.slice(at, at + written)
      // What a crash undoes is found again.
      moved.push(...(await storage.write((tx) => change(tx, part), { unsynced: true })))
    }
    if (ids.length < found) return moved
  }
}
