import { addSeconds, type Instant } from '../../core/time.ts'
import { forEachSettled, writeInChunks } from '../../storage/bisect-writes.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { Outcome } from './contract.ts'
import type { Nudge } from './ports.ts'
import { failedOutcome, maxDeliveries, redeliverySeconds } from './rules.ts'
import { lockDeviceRows, recountAll } from './store.ts'

/** Rows of one write: this bounds how long other writes wait. */
const batch = 500
/** How long finished commands are retained. */
const retentionDays = 30

const unanswered = failedOutcome(`No answer, though it was sent ${maxDeliveries} times`, 'timeout')
const unfetched = failedOutcome('It was not fetched in time')
const outOfUse = failedOutcome('The device was decommissioned')

/**
 * Queues sent commands without an answer again, and fails them after the last delivery; fails commands that were not
 * fetched in time, or whose device is decommissioned. Several processes may do so concurrently.
 */
export async function reapCommands(storage: Storage, nudge: Nudge, now: Instant): Promise<void> {
  const before = addSeconds(now, -redeliverySeconds)
  const again = async (tx: Db, ids: readonly string[]) => {
    const rows = await tx
      .updateTable('agent_commands')
      .set({ status: 'pending' })
      .where('id', 'in', ids)
      .where('status', '=', 'sent')
      .where('sent_at', '<=', before)
      .returning('device_id')
      .execute()
    for (const deviceId of new Set(rows.map(({ device_id }) => device_id))) await nudge(tx, deviceId)
  }
  const sent = (db: Db) => open(db, 'sent').where('sent_at', '<=', before)
  const pending = (db: Db) => open(db, 'pending')
  const givingUp = (status: 'sent' | 'pending', outcome: Outcome) => (tx: Db, ids: readonly string[]) =>
    failCommands(tx, ids, { status, outcome, now })
  const lost = (db: Db) => sent(db).where('sent_count', '>=', maxDeliveries)
  const late = (db: Db) => pending(db).where('expires_at', '<=', now)
  const gone = (db: Db) =>
    pending(db).where('device_id', 'in', (eb) =>
      eb.selectFrom('devices').select('devices.id').where('devices.status', '=', 'decommissioned'),
    )
  const steps: [(db: Db) => ReturnType<typeof open>, (tx: Db, ids: readonly string[]) => Promise<void>][] = [
    [lost, givingUp('sent', unanswered)],
    [(db) => sent(db).where('sent_count', '<', maxDeliveries), again],
    [late, givingUp('pending', unfetched)],
    [gone, givingUp('pending', outOfUse)],
  ]
  await forEachSettled(steps, ([due, change]) => changeInBatches(storage, due, change))
}

const open = (db: Db, status: 'sent' | 'pending') =>
  db
    .selectFrom('agent_commands')
    .select('agent_commands.id')
    .where('agent_commands.status', '=', status)
    .where('completed_at', 'is', null)

async function failCommands(
  tx: Db,
  ids: readonly string[],
  { status, outcome, now }: { status: string; outcome: Outcome; now: Instant },
): Promise<void> {
  await tx
    .updateTable('agent_commands')
    .set({ status: 'failed', completed_at: now, result: JSON.stringify(outcome) })
    .where('id', 'in', ids)
    // It may have been fetched or answered meanwhile.
    .where('status', '=', status)
    .execute()
}

async function changeInBatches(
  storage: Storage,
  due: (db: Db) => ReturnType<typeof open>,
  change: (tx: Db, ids: readonly string[]) => Promise<void>,
): Promise<void> {
  const find = (except: readonly string[]) =>
    due(storage.read)
      .$if(except.length > 0, (q) => q.where('agent_commands.id', 'not in', except))
      .limit(batch)
      .execute()
  await writeInChunks(storage, find, change, batch)
}

/** Deletes commands that finished before the retention time. */
export async function deleteOldCommands(storage: Storage, now: Instant): Promise<void> {
  const before = addSeconds(now, -retentionDays * 86_400)
  const find = (except: readonly string[]) =>
    storage.read
      .selectFrom('agent_commands')
      .select('id')
      .where('completed_at', 'is not', null)
      .where('completed_at', '<', before)
      .$if(except.length > 0, (q) => q.where('id', 'not in', except))
      .orderBy('completed_at')
      .limit(batch)
      .execute()
  await writeInChunks(storage, find, deleteCommands, batch)
}

async function deleteCommands(tx: Db, ids: readonly string[]): Promise<void> {
  const found = tx.selectFrom('agent_commands').select('device_id').distinct().where('id', 'in', ids)
  const of = (await found.execute()).map(({ device_id }) => device_id)
  if (of.length === 0) return
  await lockDeviceRows(tx, of)
  await tx.deleteFrom('agent_commands').where('id', 'in', ids).execute()
  await recountAll(tx, of)
}
