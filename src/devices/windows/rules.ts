import { Cron } from 'croner'
import { addSeconds, type Instant } from '../../core/time.ts'
import { parseWeeklyTimes, spellWeeklyTimes, type WeeklyWindow } from '../../core/weekly-window.ts'
import type { Device, NewWindow } from '../contract.ts'

/* When a maintenance window is open. */

export type Occurrence = { opensAt: Instant; closesAt: Instant }

/** The window as stored. Its time zone is that of the site now: a site that moves later does not move it. */
export const makeWindow = (
  { every, durationMinutes, timezone }: NewWindow,
  siteZone: string,
): WeeklyWindow => ({
  every: spellWeeklyTimes(every),
  durationMinutes,
  timezone: timezone ?? siteZone,
})

/**
 * The occurrence of a window that is open at `now`, or else the next one. A local time that the clocks skip is the moment
 * after the gap; of one that they repeat the first counts; the duration is elapsed time. undefined for a window that
 * cannot be computed, such as one in a time zone that this process does not know: it never opens, because an intended
 * restriction must not permit everything.
 */
export function occurrenceAt(window: WeeklyWindow, now: Instant): Occurrence | undefined {
  const key = `${window.every} ${window.durationMinutes} ${window.timezone}`
  const known = computed.get(key)
  if (known && known.since <= now && (known.at === undefined || now < known.at.closesAt)) return known.at
  computed.delete(key)
  if (computed.size >= maxComputed) computed.delete(computed.keys().next().value!)
  const at = compute(window, now)
  computed.set(key, { since: now, at })
  return at
}

/** Occurrences as computed at `since`: a fleet has few windows, and each takes as long to compute as a heartbeat. */
const computed = new Map<string, { since: Instant; at: Occurrence | undefined }>()
const maxComputed = 10_000

function compute({ every, durationMinutes, timezone }: WeeklyWindow, now: Instant): Occurrence | undefined {
  const times = parseWeeklyTimes(every)
  if (!times) return undefined
  try {
    const pattern = `${times.minute} ${times.hour} * * ${times.days.join(',')}`
    const starts = new Cron(pattern, { paused: true, mode: '5-part', timezone })
    const opens = starts.nextRun(new Date(addSeconds(now, -durationMinutes * 60)))
    if (opens === null) return undefined
    const opensAt = opens.toISOString()
    return { opensAt, closesAt: addSeconds(opensAt, durationMinutes * 60) }
  } catch {
    // A time zone that this version of the system no longer knows: the window does not open.
    return undefined
  }
}

/** The device with the occurrence of its window that is open, or the next one. */
export const withNextWindow = <D extends Device>(device: D, now: Instant) => ({
  ...device,
  nextWindow: (device.maintenanceWindow && occurrenceAt(device.maintenanceWindow, now)) ?? null,
})

export function isOpenAt(window: WeeklyWindow, now: Instant): boolean {
  const at = occurrenceAt(window, now)
  return at !== undefined && at.opensAt <= now
}

/** Whether one occurrence is open from the first to the second moment. */
export function isOpenThroughout(window: WeeklyWindow, from: Instant, to: Instant): boolean {
  const at = occurrenceAt(window, from)
  return at !== undefined && at.opensAt <= from && to <= at.closesAt
}
