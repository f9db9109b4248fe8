import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { removeMembers } from './members.ts'

/**
 * Takes a device out of the groups of sites it is not in, also those it was pinned to. For the transaction that
 * moves it, so that nobody who is limited to a group of its old site sees it any longer.
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
