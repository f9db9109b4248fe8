import type { Instant } from '../../core/time.ts'
import type { ByteQuota, Owner } from '../../logs/quota.ts'
import { computeShares } from '../../logs/quota-shares.ts'
import { forEachSettled } from '../../storage/bisect-writes.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { dropOutput } from './rules.ts'
import * as store from './store.ts'

/** Outcomes up to this size are not trimmed. */
const outputThreshold = 1024
/** Outputs dropped in one write: this bounds how long other writes wait. */
const batch = 50

/**
 * Counts the stored outcomes of a locked device, and drops its oldest outputs while they exceed the quota. The latest
 * one stays, however large it is: otherwise its agent could never deliver it.
 */
export async function enforceOutputQuota(
  db: Db,
  owner: Owner,
  last: { id: string; bytes: number },
  quota: ByteQuota,
  now: Instant,
): Promise<void> {
  const room = quota.roomOf(owner.orgId)
  let dropped = 0
  for (;;) {
    const more = await dropOutputs(db, owner.deviceId, { room, except: last.id, now })
    dropped += more.dropped
    if (more.dropped === batch) continue
    if (dropped > 0) quota.deleted(owner, dropped)
    return quota.recordStored(owner, last.bytes, more.kept)
  }
}

/** The same for all devices that exceed their quota. Several processes may do so concurrently. */
export async function trimOutputs(
  storage: Storage,
  quota: ByteQuota,
  now: Instant,
): Promise<{ bytes: number }> {
  const { bytes, full } = await computeShares(storage, 'command_bytes', quota)
  await forEachSettled(full, async ({ id, org_id }) => {
    const room = quota.roomOf(org_id)
    const some = async (tx: Db) => {
      await store.lockDeviceRows(tx, [id])
      return dropOutputs(tx, id, { room, now })
    }
    let dropped = 0
    for (let more = batch; more === batch; dropped += more) {
      more = (await storage.write(some, { unsynced: true })).dropped
    }
    if (dropped > 0) quota.deleted({ deviceId: id, orgId: org_id }, dropped)
  })
  return { bytes }
}

type DropOptions = { room: number; except?: string; now: Instant }

/** Returns the number of outputs dropped, at most one batch, and the bytes that remain. */
async function dropOutputs(db: Db, deviceId: string, { room, except, now }: DropOptions) {
  let kept = await store.recountBytes(db, deviceId)
  if (kept <= room) return { kept, dropped: 0 }
  let dropped = 0
  for (const { id, bytes } of await store.listOldestOutputs(db, deviceId, {
    over: outputThreshold,
    limit: batch,
    except,
  })) {
    if (kept <= room) break
    const outcome = dropOutput(await store.getOutcome(db, id), bytes, now)
    kept -= bytes - (await store.saveOutcome(db, id, outcome))
    dropped += 1
  }
  return { kept: await store.recountBytes(db, deviceId), dropped }
}
