import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { type Moved, movedColumns } from './events.ts'

/* The state of devices as time goes by: of all tenants at once, by the service itself. */

const alive = ['online', 'updating'] as const

/** What is due by now: to be silent since `before`, or in maintenance until now. */
export type Due = { now: Instant; before: Instant }

/** Both in one reading of the table: an index over what every heartbeat changes would cost each of them. */
export async function findDue(
  db: Db,
  { now, before }: Due,
  limit: number,
): Promise<{ silent: string[]; maintained: string[] }> {
  const rows = await db
    .selectFrom('devices')
    .select(['id', 'status'])
    .where((eb) =>
      eb.or([
        eb.and([eb('status', 'in', alive), eb('last_seen_at', '<', before)]),
        eb.and([eb('status', '=', 'maintenance'), eb('maintenance_until', '<=', now)]),
      ]),
    )
    .limit(limit)
    .execute()
  const [maintained, silent] = [true, false].map((ending) =>
    rows.filter(({ status }) => (status === 'maintenance') === ending).map(({ id }) => id),
  ) as [string[], string[]]
  return { silent, maintained }
}

/** Of these devices those that are still silent; a heartbeat or another process may have been faster. */
export async function markOffline(db: Db, ids: readonly string[], { before }: Due): Promise<Moved[]> {
  return db
    .updateTable('devices')
    .set({ status: 'offline' })
    .where('id', 'in', ids)
    .where('status', 'in', alive)
    .where('last_seen_at', '<', before)
    .returning(movedColumns)
    .execute()
}

/** Ends the maintenance of those of these devices whose time is over. */
export async function endMaintenance(db: Db, ids: readonly string[], { now, before }: Due): Promise<Moved[]> {
  return db
    .updateTable('devices')
    .set((eb) => ({
      status: eb.case().when('last_seen_at', '>=', before).then('online').else('offline').end(),
      maintenance_until: null,
    }))
    .where('id', 'in', ids)
    .where('status', '=', 'maintenance')
    .where('maintenance_until', '<=', now)
    .returning(movedColumns)
    .execute()
}
