export const secondsPerUnit: Readonly<Record<string, number>> = {
  s: 1,
  m: 60,
  h: 3600,
  d: 86_400,
  w: 604_800,
}

/** `10m` is ten minutes ago. Anything else is parsed by the service. */
export function parseTime(text: string, now: number = Date.now()): string {
  const [, count, unit] = /^(\d{1,5})([smhdw])$/.exec(text) ?? []
  if (count && unit) return new Date(now - Number(count) * secondsPerUnit[unit]! * 1000).toISOString()
  return text
}

/** How long ago that was, in the largest unit that fits: `3 h`. */
export function formatAge(instant: string, now: number = Date.now()): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(instant)) / 1000))
  const units = [
    ['d', 86_400],
    ['h', 3600],
    ['min', 60],
  ] as const
  const [unit, size] = units.find(([, size]) => seconds >= size) ?? ['s', 1]
  return `${Math.floor(seconds / size)} ${unit}`
}
