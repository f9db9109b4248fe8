import { usageError } from './exit-codes.ts'
import { durationSeconds } from './times.ts'

/**
 * `10m` is ten minutes ago, or in ten minutes where a time to come is meant. Dates and instants are parsed by the
 * service. @throws usage
 */
export function parseTime(text: string, flag: string, { future = false, now = Date.now() } = {}): string {
  const seconds = durationSeconds(text)
  if (seconds !== undefined) return new Date(now + (future ? seconds : -seconds) * 1000).toISOString()
  if (/^\d{4}-\d\d-\d\d/.test(text)) return text
  throw usageError(
    `${flag} takes a time, not "${text}"`,
    'such as 30d, 12h, 2026-01-31 or 2026-01-31T12:00:00Z',
  )
}
