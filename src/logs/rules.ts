import { addSeconds, type Instant } from '../core/time.ts'

const tolerance = 600

type Data = Record<string, unknown> | null

/**
 * Corrects a time in the future. An entry from a machine whose clock is ahead would stay on top of every list:
 * a time more than 10 minutes ahead becomes now, and the machine's own time is stored in the data.
 */
export function withPlausibleTime(
  timestamp: Instant,
  data: Data,
  now: Instant,
): { timestamp: Instant; data: Data } {
  if (timestamp <= addSeconds(now, tolerance)) return { timestamp, data }
  return { timestamp: now, data: { ...data, originalTimestamp: timestamp, timestampClamped: true } }
}
