import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'

/* The state of devices as time goes by: of all tenants at once, by the service itself. */

/** A device whose state moved. */
export type Moved = { id: string; org_id: string; status: string }

const alive = ['online', 'updating'] as const

const silent = (db: Db, before: Instant) =>
  db.selectFrom('devices').where('status', 'in', alive).where('last_seen_at', '<', before)

const over = (db: Db, now: Instant) =>
  db.selectFrom('devices').where('status', '=', 'maintenance').where('maintenance_until', '<=', now)

export async function findSilent(db: Db, before: Instant, limit: number): Promise<string[]> {
  const rows = await silent(db, before).select('id').limit(limit).execute()
  return rows.map(({ id }) => id)
}

export async function findMaintained(db: Db, now: Instant, limit: number): Promise<string[]> {
  const rows = await over(db, now).select('id').limit(limit).execute()
  return rows.map(({ id }) => id)
}

/** Of these devices those that are still silent; a heartbeat or another process may have been faster. */
export async function markOffline(db: Db, ids: readonly string[], before: Instant): Promise<Moved[]> {
  return db
    .updateTable('devices')
    .set({ status: 'offline' })
    .where('id', 'in', ids)
    .where('status', 'in', alive)
    .where('last_seen_at', '<', before)
    .returning(['id', 'org_id', 'status'])
    .execute()
}

/** Ends the maintenance of those of these devices whose time is over. */
export async function endMaintenance(
  db: Db,
  ids: readonly string[],
  { now, before }: { now: Instant; before: Instant },
): Promise<Moved[]> {
  return db
    .updateTable('devices')
    .set((eb) => ({
      status: eb.case().when('last_seen_at', '>=', before).then('online').else('offline').end(),
      maintenance_until: null,
    }))
    .where('id', 'in', ids)
    .where('status', '=', 'maintenance')
    .where('maintenance_until', '<=', now)
    .returning(['id', 'org_id', 'status'])
    .execute()
}
