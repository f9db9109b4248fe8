import { type Instant, later } from '../../core/time.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { Outcome } from './contract.ts'
import type { Nudge } from './ports.ts'
import { answerSeconds, givenUp, mostSent } from './rules.ts'

/** Rows of one write: nobody waits for longer than that. */
const batch = 500
/** How long commands are kept after their end. */
const keptDays = 30

const unanswered = givenUp(`No answer, though it was sent ${mostSent} times`, 'timeout')
const unfetched = givenUp('Nobody fetched it in time')
const outOfUse = givenUp('The device was decommissioned')

/**
 * What was given out and not answered is given out again, and given up after that; so is what nobody fetched. Any number
 * of processes may do so at once.
 */
export async function reapCommands(storage: Storage, nudge: Nudge, now: Instant): Promise<void> {
  const before = later(now, -answerSeconds)
  const again = async (tx: Db, ids: string[]) => {
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
  const givingUp = (status: 'sent' | 'pending', outcome: Outcome) => (tx: Db, ids: string[]) =>
    giveUp(tx, ids, { status, outcome, now })
  await inParts(storage, (db) => sent(db).where('sent_count', '>=', mostSent), givingUp('sent', unanswered))
  await inParts(storage, (db) => sent(db).where('sent_count', '<', mostSent), again)
  await inParts(storage, (db) => pending(db).where('expires_at', '<=', now), givingUp('pending', unfetched))
  const gone = (db: Db) =>
    pending(db).where('device_id', 'in', (eb) =>
      eb.selectFrom('devices').select('devices.id').where('devices.status', '=', 'decommissioned'),
    )
  await inParts(storage, gone, givingUp('pending', outOfUse))
}

const open = (db: Db, status: 'sent' | 'pending') =>
  db
    .selectFrom('agent_commands')
    .select('agent_commands.id')
    .where('agent_commands.status', '=', status)
    .where('completed_at', 'is', null)

async function giveUp(
  tx: Db,
  ids: string[],
  { status, outcome, now }: { status: string; outcome: Outcome; now: Instant },
): Promise<void> {
  await tx
    .updateTable('agent_commands')
    .set({ status: 'failed', completed_at: now, result: JSON.stringify(outcome) })
    .where('id', 'in', ids)
    // It may have been fetched, or answered, meanwhile.
    .where('status', '=', status)
    .execute()
}

async function inParts(
  storage: Storage,
  due: (db: Db) => ReturnType<typeof open>,
  change: (tx: Db, ids: string[]) => Promise<void>,
): Promise<void> {
  for (;;) {
    const ids = (await due(storage.read).limit(batch).execute()).map(({ id }) => id)
    // What a crash undoes is found again.
    if (ids.length > 0) await storage.write((tx) => change(tx, ids), { unsynced: true })
    if (ids.length < batch) return
  }
}

/** Deletes what ended longer ago than it is kept. */
export async function forgetCommands(storage: Storage, now: Instant): Promise<void> {
  const before = later(now, -keptDays * 86_400)
  for (;;) {
    const gone = await storage.write((tx) => forgetSome(tx, before), { unsynced: true })
    if (gone < batch) return
  }
}

async function forgetSome(tx: Db, before: Instant): Promise<number> {
  const { numDeletedRows } = await tx
    .deleteFrom('agent_commands')
    .where('id', 'in', (eb) =>
      eb
        .selectFrom('agent_commands')
        .select('id')
        .where('completed_at', 'is not', null)
        .where('completed_at', '<', before)
        .orderBy('completed_at')
        .limit(batch),
    )
    .executeTakeFirstOrThrow()
  return Number(numDeletedRows)
}
