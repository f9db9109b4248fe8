import { recordDeletions } from '../../audit/deletions.ts'
import type { Instant } from '../../core/time.ts'
import { forEachSettled, writeInChunks } from '../../storage/bisect-writes.ts'
import type { Storage } from '../../storage/open.ts'

/** Devices of one transaction. */
const batch = 500

/**
 * Deletes rollouts that ended before a time, with the parts that devices had in them. A rollout stays while it decides
 * what devices are offered, or while one of its devices runs its version: a later rollout has to know what brought it there.
 */
export async function deleteEndedRollouts(storage: Storage, before: Instant, now: Instant): Promise<void> {
  const due = await storage.heavy
    .selectFrom('agent_rollouts as r')
    .select(['r.id', 'r.version'])
    .where('r.ended_at', '<', before)
    .where('r.is_current', '=', 0)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('agent_rollout_devices as rd')
            .innerJoin('devices', 'devices.id', 'rd.device_id')
            .select('rd.device_id')
            .whereRef('rd.rollout_id', '=', 'r.id')
            .whereRef('devices.agent_version', '=', 'r.version'),
        ),
      ),
    )
    .execute()
  await forEachSettled(due, async ({ id, version }) => {
    await deleteParts(storage, id)
    await storage.write(async (tx) => {
      const { numDeletedRows } = await tx
        .deleteFrom('agent_rollouts')
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      // Otherwise another process did it, and has recorded it.
      if (numDeletedRows > 0n)
        await recordDeletions(tx, 'agent_rollout', [{ id, org_id: null, name: version }], now)
    })
  })
}

const deleteParts = (storage: Storage, rolloutId: string): Promise<void> =>
  writeInChunks(
    storage,
    (except) =>
      storage.read
        .selectFrom('agent_rollout_devices')
        .select('device_id as id')
        .where('rollout_id', '=', rolloutId)
        .$if(except.length > 0, (q) => q.where('device_id', 'not in', except))
        .limit(batch)
        .execute(),
    (tx, ids) =>
      tx
        .deleteFrom('agent_rollout_devices')
        .where('rollout_id', '=', rolloutId)
        .where('device_id', 'in', ids)
        .execute(),
    batch,
  )
