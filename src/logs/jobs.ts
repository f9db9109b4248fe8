import { type Instant, later } from '../core/time.ts'
import type { Db, Storage } from '../storage/open.ts'

/** Rows of one write: nobody waits for longer than that. */
const batch = 1000
const day = 86_400

export type Retention = { agentLogRetentionDays: number; eventLogRetentionDays: number }

/** Deletes what came in longer ago than it is kept. Any number of processes may do so at once. */
export async function forgetOldLogs(
  storage: Storage,
  { agentLogRetentionDays, eventLogRetentionDays }: Retention,
  now: Instant,
): Promise<void> {
  await forget(storage, 'agent_logs', later(now, -agentLogRetentionDays * day))
  await forget(storage, 'device_event_logs', later(now, -eventLogRetentionDays * day))
}

async function forget(
  storage: Storage,
  table: 'agent_logs' | 'device_event_logs',
  before: Instant,
): Promise<void> {
  // What a crash brings back is found again.
  for (;;) {
    const gone = await storage.write((tx) => forgetSome(tx, table, before), { unsynced: true })
    if (gone < batch) return
  }
}

async function forgetSome(
  db: Db,
  table: 'agent_logs' | 'device_event_logs',
  before: Instant,
): Promise<number> {
  const { numDeletedRows } = await db
    .deleteFrom(table)
    .where('id', 'in', (eb) =>
      eb.selectFrom(table).select('id').where('created_at', '<', before).orderBy('created_at').limit(batch),
    )
    .executeTakeFirstOrThrow()
  return Number(numDeletedRows)
}
