import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { removeMembers } from './members.ts'

/**
 * Removes a device from the groups of sites it is not in, also where it is pinned. Runs in the transaction that moves
 * the device, so that nobody restricted to a group of its old site can still see it.
 */
export async function leaveGroupsOfOtherSites(db: Db, now: Instant, deviceId: string): Promise<void> {
  const groups = await db
    .selectFrom('device_group_devices as m')
    .innerJoin('device_groups as g', 'g.id', 'm.group_id')
    .innerJoin('devices as d', 'd.id', 'm.device_id')
    .select('g.id')
    .where('g.site_id', 'is not', null)
    .where(({ or, eb }) => or([eb('d.site_id', 'is', null), eb('d.site_id', '!=', eb.ref('g.site_id'))]))
    .where('m.device_id', '=', deviceId)
    .orderBy('g.id')
    .execute()
  for (const { id } of groups) await removeMembers(db, id, [deviceId], { reason: 'manual', now })
}
