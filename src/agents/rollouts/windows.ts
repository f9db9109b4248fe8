import { setImmediate } from 'node:timers/promises'
import type { Instant } from '../../core/time.ts'
import type { WeeklyWindow } from '../../core/weekly-window.ts'
import { occurrenceAt } from '../../devices/windows/rules.ts'
import type { Db } from '../../storage/open.ts'
import { windowOf } from '../upgrades/rules.ts'
import { countWaiting } from './devices.ts'
import { type EligibleDevices, laterOf, noEligibleDevices } from './progress.ts'
import type { RolloutRecord } from './rules.ts'

/* The maintenance windows of the devices of a rollout. */

/** The windows that organizations set, for devices without one of their own. */
export async function listOrgWindows(db: Db): Promise<Map<string, WeeklyWindow>> {
  const rows = await db
    .selectFrom('organizations')
    .select(['id', 'settings'])
    .where('settings', 'like', '%maintenanceWindow%')
    .execute()
  const windows = rows.map(({ id, settings }) => [id, windowOf(JSON.parse(settings))] as const)
  return new Map(windows.filter((one): one is [string, WeeklyWindow] => one[1] !== null))
}

/** The window that holds for a device, given its own as stored; null: none. */
export const effectiveWindow = (
  { orgId, ownWindow }: { orgId: string; ownWindow: string | null },
  ofOrgs: ReadonlyMap<string, WeeklyWindow>,
): WeeklyWindow | null =>
  ownWindow === null ? (ofOrgs.get(orgId) ?? null) : (JSON.parse(ownWindow) as WeeklyWindow)

/** Windows computed before yielding to other work: one that is not known yet takes a good part of a millisecond. */
const yieldEvery = 50

/** The devices that would be asked now, apart from those that wait for their windows. */
export async function readEligibleDevices(
  db: Db,
  rollout: RolloutRecord,
  now: Instant,
): Promise<EligibleDevices> {
  const ofOrgs = await listOrgWindows(db)
  const found = { ...noEligibleDevices }
  for (const [n, { devices, ...group }] of (await countWaiting(db, rollout)).entries()) {
    if (n % yieldEvery === yieldEvery - 1) await setImmediate()
    const window = effectiveWindow(group, ofOrgs)
    const opensAt = window && occurrenceAt(window, now)?.opensAt
    if (window === null || (opensAt != null && opensAt <= now)) {
      found.eligible += devices
      found.lastOpenedAt = laterOf(found.lastOpenedAt, opensAt ?? null)
    } else {
      found.held += devices
      found.lastOpensAt = laterOf(found.lastOpensAt, opensAt ?? null)
      if (opensAt != null && opensAt < (found.firstOpensAt ?? '~')) found.firstOpensAt = opensAt
    }
  }
  return found
}
