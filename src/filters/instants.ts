import type { Instant } from '../core/time.ts'
import type { TimeUnit } from './conditions/contract.ts'

const first = Date.parse('0000-01-01T00:00:00.000Z')
const last = Date.parse('9999-12-31T23:59:59.999Z')

/**
 * Milliseconds as text that compares with stored instants. Values outside the years 0 to 9999 sort before or after
 * all of them; `toISOString` would sort a year of six digits first.
 */
export function toComparable(ms: number): string {
  if (ms < first) return ''
  return ms > last ? ':' : new Date(ms).toISOString()
}

/** The instant of an ISO 8601 date, or date and time with an offset; a date alone is midnight UTC. */
export const parseDate = (text: string): number => Date.parse(text)

export const day = 86_400_000
const exact = { minutes: 60_000, hours: 3_600_000, days: day, weeks: 7 * day }

/** Start of a window of this length that ends now; may have a fraction of a millisecond. */
export function windowStart(now: Instant, amount: number, unit: TimeUnit): number {
  const end = Date.parse(now)
  return unit === 'months' ? monthsBefore(end, amount) : end - amount * exact[unit]
}

/** The same day of an earlier month, or the last day of that month. */
function monthsBefore(ms: number, months: number): number {
  const at = new Date(ms)
  const dayOfMonth = at.getUTCDate()
  at.setUTCDate(1)
  at.setUTCMonth(at.getUTCMonth() - months)
  const lastDay = new Date(at)
  lastDay.setUTCMonth(lastDay.getUTCMonth() + 1, 0)
  return at.setUTCDate(Math.min(dayOfMonth, lastDay.getUTCDate()))
}
