import { addSeconds, type Instant } from '../../src/core/time.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import { forEachSettled } from '../../src/storage/bisect-writes.ts'
import type { Db } from '../../src/storage/open.ts'
import type { ArchiveStore, StoredArchive } from './archive-store.ts'
import { withRunsDatabase } from './runs.ts'

/**
 * The archives of a directory or prefix that this installation wrote, the newest first. One with another size was replaced by
 * somebody.
 */
export async function ownArchives(
  db: Db,
  store: ArchiveStore,
): Promise<(StoredArchive & { madeAt: Instant })[]> {
  const rows = await db.selectFrom('backups').selectAll().orderBy('made_at', 'desc').execute()
  const stored = new Map((await store.list()).map((one) => [one.place, one]))
  return rows.flatMap(({ place, made_at, bytes }) => {
    const found = stored.get(place)
    return found?.bytes === bytes ? [{ ...found, madeAt: made_at }] : []
  })
}

/**
 * Removes archives of this installation that are beyond the number or older than the days, but never the newest. Returns their
 * places.
 */
export const prune = (
  place: DatabaseLocation,
  store: ArchiveStore,
  {
    keep = Number.POSITIVE_INFINITY,
    keepDays = 0,
  }: { keep?: number | undefined; keepDays?: number | undefined },
  now: Instant,
): Promise<string[]> =>
  withRunsDatabase(place, async (storage) => {
    const oldest = keepDays === 0 ? '' : addSeconds(now, -keepDays * 86_400)
    const [, ...older] = await ownArchives(storage.read, store)
    const removed: string[] = []
    const due = older.filter(({ madeAt }, n) => n + 1 >= keep || madeAt < oldest)
    await forEachSettled(due, async ({ name, place: at }) => {
      await store.remove(name)
      await storage.write((tx) => tx.deleteFrom('backups').where('place', '=', at).execute())
      removed.push(at)
    })
    return removed
  })
