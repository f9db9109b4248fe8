import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { takeMembers } from './members.ts'

type Stray = { groupId: string; deviceId: string }

/** Devices in groups of a site they are not in: one device, or all there are. */
export async function findStrays(db: Db, deviceId?: string): Promise<Stray[]> {
  return db
    .selectFrom('device_group_devices as m')
    .innerJoin('device_groups as g', 'g.id', 'm.group_id')
    .innerJoin('devices as d', 'd.id', 'm.device_id')
    .select(['m.group_id as groupId', 'm.device_id as deviceId'])
    .where('g.site_id', 'is not', null)
    .where(({ or, eb }) => or([eb('d.site_id', 'is', null), eb('d.site_id', '!=', eb.ref('g.site_id'))]))
    .$if(deviceId !== undefined, (q) => q.where('m.device_id', '=', deviceId!))
    .orderBy('m.group_id')
    .execute()
}

/**
 * Takes them out. For the transaction that moves a device, so that nobody who is limited to a group of its old
 * site sees it any longer.
 */
export async function removeStrays(db: Db, now: Instant, deviceId?: string): Promise<void> {
  const byGroup = Map.groupBy(await findStrays(db, deviceId), ({ groupId }) => groupId)
  for (const [groupId, strays] of byGroup) {
    const ids = strays.map((stray) => stray.deviceId)
    await takeMembers(db, groupId, ids, { reason: 'manual', now })
  }
}
