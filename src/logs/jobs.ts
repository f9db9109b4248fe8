import { type Instant, later } from '../core/time.ts'
import { eachByItself, inParts } from '../storage/apart.ts'
import type { Storage } from '../storage/open.ts'

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
  const kept = [
    ['agent_logs', agentLogRetentionDays],
    ['device_event_logs', eventLogRetentionDays],
  ] as const
  await eachByItself(kept, ([table, days]) => forget(storage, table, later(now, -days * day)))
}

async function forget(
  { read, write }: Storage,
  table: 'agent_logs' | 'device_event_logs',
  before: Instant,
): Promise<void> {
  const find = (except: readonly string[]) =>
    read
      .selectFrom(table)
      .select('id')
      .where('created_at', '<', before)
      .$if(except.length > 0, (q) => q.where('id', 'not in', except))
      .orderBy('created_at')
      .limit(batch)
      .execute()
  // What a crash brings back is found again.
  const remove = (ids: readonly string[]) =>
    write((tx) => tx.deleteFrom(table).where('id', 'in', ids).execute(), { unsynced: true })
  await inParts(find, remove, batch)
}
