/** A part of every week: begins at each of its local times, and lasts for its duration. */
export type WeeklyWindow = { every: string; durationMinutes: number; timezone: string }

/** Local times of a week. Days count from 0 for Sunday. */
export type WeeklyTimes = { days: number[]; hour: number; minute: number }

const names = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat']
const minutesOfDay = 24 * 60

/** Parses `Sun 02:00`, `Mon-Fri,Sun 22:30` or `daily 03:00`, in any letter case; undefined for anything else. */
export function parseWeeklyTimes(text: string): WeeklyTimes | undefined {
  const [, said = '', hour, minute] = /^([a-z,-]+) ([01]\d|2[0-3]):([0-5]\d)$/i.exec(text) ?? []
  const spans = said.toLowerCase() === 'daily' ? [[0, 1, 2, 3, 4, 5, 6]] : said.split(',').map(daysOf)
  if (spans.includes(undefined)) return undefined
  const days = [...new Set(spans.flatMap((span) => span!))].sort()
  return { days, hour: Number(hour), minute: Number(minute) }
}

/** The days of `Sun` or `Fri-Mon`, which may go past the end of the week. */
function daysOf(span: string): number[] | undefined {
  const [from = -1, to = from, ...more] = span.split('-').map(dayOf)
  if (from < 0 || to < 0 || more.length > 0) return undefined
  return Array.from({ length: ((to - from + 7) % 7) + 1 }, (_, n) => (from + n) % 7)
}

const dayOf = (name: string): number => names.findIndex((one) => one.toLowerCase() === name.toLowerCase())

/** The same text with the letter case of `Mon-Fri 22:30`. */
export const spellWeeklyTimes = (text: string): string =>
  text.toLowerCase().replace(/(?<![a-z])(?!daily)[a-z]/g, (letter) => letter.toUpperCase())

const spanPattern = /^(\w{3}) (\d\d:\d\d)-(\d\d:\d\d)$/

/**
 * Parses `Sun 02:00-04:00`, in UTC; an end that is not after the start is on the next day. undefined for anything else,
 * and for an empty window.
 */
export function parseWeeklyWindow(text: string): WeeklyWindow | undefined {
  const [, day = '', from, to] = spanPattern.exec(text) ?? []
  const begins = parseWeeklyTimes(`${day} ${from}`)
  const ends = parseWeeklyTimes(`${day} ${to}`)
  if (!begins || !ends || !names.includes(day) || from === to) return undefined
  const minutes = (ends.hour - begins.hour) * 60 + ends.minute - begins.minute
  const durationMinutes = (minutes + minutesOfDay) % minutesOfDay
  return { every: `${day} ${from}`, durationMinutes, timezone: 'UTC' }
}
