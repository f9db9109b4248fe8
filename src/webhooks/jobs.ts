import { addSeconds, type Instant } from '../core/time.ts'
import { forEachSettled, writeInChunks } from '../storage/bisect-writes.ts'
import { deleteEventDeadLetters } from '../storage/dead-letters.ts'
import type { Db, Storage } from '../storage/open.ts'
import { storedHours } from './contract.ts'

/** Rows of one transaction: this bounds how long other writes wait. */
const batch = 500

const surpassedBy = (kept: number) =>
  `Dropped: the webhook has ${kept} later deliveries, the most that are kept`
const expired = `Stored for ${storedHours} hours while the webhook was paused, and not replayed`

/**
 * Fails deliveries that were stored too long, deletes deliveries finished more than `deliveryDays` ago, leaves each
 * webhook its newest `deliveriesKept`, and removes deleted webhooks with all their deliveries.
 */
export async function deleteOldDeliveries(
  storage: Storage,
  settings: { deliveryDays: number; deliveriesKept: number },
  now: Instant,
): Promise<void> {
  const keptSince = addSeconds(now, -storedHours * 3600)
  const endedBefore = addSeconds(now, -settings.deliveryDays * 86_400)
  const steps = [
    () => expireKept(storage, keptSince, now),
    () => keepNewest(storage, settings.deliveriesKept, now),
    () => forgetEnded(storage, endedBefore),
    () => storage.write((tx) => deleteEventDeadLetters(tx, endedBefore), { unsynced: true }),
    () => removeDeleted(storage),
  ]
  await forEachSettled(steps, (step) => step())
}

const found = (db: Db, except: readonly string[]) =>
  db
    .selectFrom('webhook_deliveries')
    .select('id')
    .$if(except.length > 0, (q) => q.where('id', 'not in', except))
    .limit(batch)

async function expireKept(storage: Storage, before: Instant, now: Instant): Promise<void> {
  const find = (except: readonly string[]) =>
    found(storage.read, except)
      .where('status', '=', 'pending')
      .where('due_at', 'is', null)
      .where('created_at', '<', before)
      .execute()
  // A user may have requested one of them meanwhile.
  const expire = (tx: Db, ids: readonly string[]) =>
    tx
      .updateTable('webhook_deliveries')
      .set({ status: 'failed', error_message: expired, ended_at: now })
      .where('id', 'in', ids)
      .where('status', '=', 'pending')
      .where('due_at', 'is', null)
      .execute()
  await writeInChunks(storage, find, expire, batch)
}

async function forgetEnded(storage: Storage, before: Instant): Promise<void> {
  const find = (except: readonly string[]) =>
    found(storage.read, except).where('ended_at', '<', before).orderBy('ended_at').execute()
  // A user may have requested one of them meanwhile.
  const forget = (tx: Db, ids: readonly string[]) =>
    tx.deleteFrom('webhook_deliveries').where('id', 'in', ids).where('ended_at', '<', before).execute()
  await writeInChunks(storage, find, forget, batch)
}

/**
 * Of the deliveries of a webhook beyond its newest `kept`, deletes those that have ended, and fails the others: they are
 * deleted the next time.
 */
async function keepNewest(storage: Storage, kept: number, now: Instant): Promise<void> {
  const long = storage.read
    .selectFrom('webhook_queues')
    .select(['webhook_id', 'last_seq'])
    .where('last_seq', '>', kept)
  await forEachSettled(await long.execute(), async ({ webhook_id: id, last_seq: newest }) => {
    const older = (except: readonly string[]) =>
      found(storage.read, except)
        .where('webhook_id', '=', id)
        .where('seq', '<=', newest - kept)
        .orderBy('seq')
    const findEnded = (except: readonly string[]) => older(except).where('ended_at', 'is not', null).execute()
    const findWaiting = (except: readonly string[]) => older(except).where('ended_at', 'is', null).execute()
    const forget = (tx: Db, ids: readonly string[]) =>
      tx.deleteFrom('webhook_deliveries').where('id', 'in', ids).where('ended_at', 'is not', null).execute()
    // One that is under way counts as failed, whatever its receiver answers.
    const fail = (tx: Db, ids: readonly string[]) =>
      tx
        .updateTable('webhook_deliveries')
        .set({ status: 'failed', error_message: surpassedBy(kept), ended_at: now, due_at: null })
        .where('id', 'in', ids)
        .where('ended_at', 'is', null)
        .execute()
    await writeInChunks(storage, findEnded, forget, batch)
    await writeInChunks(storage, findWaiting, fail, batch)
  })
}

async function removeDeleted(storage: Storage): Promise<void> {
  const deleted = await storage.read
    .selectFrom('webhooks')
    .select('id')
    .where('deleted_at', 'is not', null)
    .execute()
  await forEachSettled(deleted, async ({ id }) => {
    const find = (except: readonly string[]) =>
      found(storage.read, except).where('webhook_id', '=', id).execute()
    const remove = (tx: Db, ids: readonly string[]) =>
      tx.deleteFrom('webhook_deliveries').where('id', 'in', ids).execute()
    await writeInChunks(storage, find, remove, batch)
    const end = (tx: Db) =>
      tx.deleteFrom('webhooks').where('id', '=', id).where('deleted_at', 'is not', null).execute()
    await storage.write(end, { unsynced: true })
  })
}
