import type { Instant } from './time.ts'

/**
 * A part of every week in UTC, in minutes since Monday 00:00; `to` is exclusive and may lie in the next week.
 */
export type WeeklyWindow = { from: number; to: number }

const days = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun']
const minutesOfDay = 24 * 60
const minutesOfWeek = 7 * minutesOfDay

const pattern = new RegExp(`^(${days.join('|')}) ([01]\\d|2[0-3]):([0-5]\\d)-([01]\\d|2[0-3]):([0-5]\\d)$`)

/**
 * Parses `Sun 02:00-04:00`; an end that is not after the start is on the next day. undefined for anything else,
 * and for an empty window.
 */
export function parseWeeklyWindow(text: string): WeeklyWindow | undefined {
  const [, day, ...clock] = pattern.exec(text) ?? []
  if (day === undefined) return undefined
  const [fromHour, fromMinute, toHour, toMinute] = clock.map(Number) as [number, number, number, number]
  const begins = fromHour * 60 + fromMinute
  const ends = toHour * 60 + toMinute
  if (begins === ends) return undefined
  const midnight = days.indexOf(day) * minutesOfDay
  return { from: midnight + begins, to: midnight + ends + (ends < begins ? minutesOfDay : 0) }
}

export function isInWindow({ from, to }: WeeklyWindow, now: Instant): boolean {
  const at = new Date(now)
  // Sunday is day 0 of a Date, and the last day here.
  const day = (at.getUTCDay() + 6) % 7
  const minute = day * minutesOfDay + at.getUTCHours() * 60 + at.getUTCMinutes()
  return [minute, minute + minutesOfWeek].some((one) => from <= one && one < to)
}
