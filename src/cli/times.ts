const secondsPerUnit: Readonly<Record<string, number>> = {
  s: 1,
  m: 60,
  h: 3600,
  d: 86_400,
  w: 604_800,
}

/** The seconds of a duration such as 30m, 12h or 7d; undefined for any other text. */
export function durationSeconds(text: string): number | undefined {
  const [, count, unit] = /^(\d{1,5})([smhdw])$/.exec(text) ?? []
  return count && unit ? Number(count) * secondsPerUnit[unit]! : undefined
}

const instantPattern = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$/

/** Whether a field holds a time by its name: a machine could have a time as its name, which is not to be reworded. */
export const isTimeField = (path: string): boolean =>
  /(?:At|Time\w*|timestamp|since|until|Since|Until)$|(?:^|\.)time/.test(path)

/** An instant without the fraction of a second, as tables show it; undefined for any other text. */
export function shortInstant(text: string): string | undefined {
  const [, date, time] = instantPattern.exec(text) ?? []
  return date === undefined ? undefined : `${date} ${time}Z`
}

const ages = [
  ['y', 365 * 86_400, 730 * 86_400],
  ['d', 86_400, 2 * 86_400],
  ['h', 3600, 3600],
  ['m', 60, 60],
  ['s', 1, 1],
] as const

/** `3m ago`, `in 5d`, `now`. */
export function relativeTime(instant: string, now: number): string {
  const exact = Math.round((now - Date.parse(instant)) / 1000)
  // What expires in five days is said to do so a moment later as well, and not in four.
  const seconds = exact < -50 * 60 ? exact - 60 : exact
  const [unit, size] = ages.find(([, , from]) => Math.abs(seconds) >= from) ?? ['now', 0]
  if (size === 0) return 'now'
  const age = `${Math.floor(Math.abs(seconds) / size)}${unit}`
  return seconds > 0 ? `${age} ago` : `in ${age}`
}
