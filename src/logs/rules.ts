import { addSeconds, type Instant } from '../core/time.ts'

const tolerance = 600

type Data = Record<string, unknown> | null

/**
 * When it happened, and what is known about it. A machine whose clock is ahead would stay on top of every
 * list for as long: what lies more than 10 minutes ahead becomes now, and what the machine said is kept.
 */
export function withPlausibleTime(
  timestamp: Instant,
  data: Data,
  now: Instant,
): { timestamp: Instant; data: Data } {
  if (timestamp <= addSeconds(now, tolerance)) return { timestamp, data }
  return { timestamp: now, data: { ...data, originalTimestamp: timestamp, timestampClamped: true } }
}
