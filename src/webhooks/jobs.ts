import { type Instant, later } from '../core/time.ts'
import type { Db, Storage } from '../storage/open.ts'

/** How long what came while a webhook was paused can wait to be replayed (decisions.md, Webhooks). */
const keptHours = 72
/** Rows of one transaction, so that nobody waits long for it. */
const batch = 500

const expired = `Kept for ${keptHours} hours while the webhook was paused, and not replayed`

/**
 * What was kept too long fails, deliveries that came to their end more than `deliveryDays` ago go, and webhooks
 * that were deleted with all of theirs.
 */
export async function tidy(
  storage: Storage,
  settings: { deliveryDays: number },
  now: Instant,
): Promise<void> {
  const write = (work: (tx: Db) => Promise<number>) => storage.write(work, { unsynced: true })
  const keptSince = later(now, -keptHours * 3600)
  while ((await write((tx) => expireKept(tx, keptSince, now))) === batch);
  const endedBefore = later(now, -settings.deliveryDays * 86_400)
  while ((await write((tx) => forgetEnded(tx, endedBefore))) === batch);
  const deleted = await storage.read
    .selectFrom('webhooks')
    .select('id')
    .where('deleted_at', 'is not', null)
    .execute()
  for (const { id } of deleted) {
    while ((await write((tx) => removeDeliveries(tx, id))) === batch);
    await write(async (tx) => {
      await tx.deleteFrom('webhooks').where('id', '=', id).where('deleted_at', 'is not', null).execute()
      return 0
    })
  }
}

async function expireKept(tx: Db, before: Instant, now: Instant): Promise<number> {
  const found = await tx
    .selectFrom('webhook_deliveries')
    .select('id')
    .where('status', '=', 'pending')
    .where('due_at', 'is', null)
    .where('created_at', '<', before)
    .limit(batch)
    .execute()
  const ids = found.map(({ id }) => id)
  if (ids.length === 0) return 0
  await tx
    .updateTable('webhook_deliveries')
    .set({ status: 'failed', error_message: expired, ended_at: now })
    .where('id', 'in', ids)
    .where('status', '=', 'pending')
    .where('due_at', 'is', null)
    .execute()
  return ids.length
}

async function forgetEnded(tx: Db, before: Instant): Promise<number> {
  const found = tx
    .selectFrom('webhook_deliveries')
    .select('id')
    .where('ended_at', '<', before)
    .orderBy('ended_at')
    .limit(batch)
  const ids = (await found.execute()).map(({ id }) => id)
  if (ids.length === 0) return 0
  // Somebody may have asked for one of them meanwhile.
  await tx.deleteFrom('webhook_deliveries').where('id', 'in', ids).where('ended_at', '<', before).execute()
  return ids.length
}

async function removeDeliveries(tx: Db, webhookId: string): Promise<number> {
  const found = tx
    .selectFrom('webhook_deliveries')
    .select('id')
    .where('webhook_id', '=', webhookId)
    .limit(batch)
  const ids = (await found.execute()).map(({ id }) => id)
  if (ids.length > 0) await tx.deleteFrom('webhook_deliveries').where('id', 'in', ids).execute()
  return ids.length
}
