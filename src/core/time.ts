/** A moment as ISO 8601 UTC text with milliseconds; sorts as text. */
export type Instant = string

export type Clock = () => Instant

/** A millisecond in which much happens is written out once. */
export const systemClock: Clock = () => {
  const now = Date.now()
  if (now !== at) [at, text] = [now, new Date(now).toISOString()]
  return text
}

let at = Number.NaN
let text: Instant = ''

export function later(now: Instant, seconds: number): Instant {
  return new Date(Date.parse(now) + seconds * 1000).toISOString()
}

/** Seconds from `a` to `b`, negative when `b` is earlier. */
export function secondsBetween(a: Instant, b: Instant): number {
  return (Date.parse(b) - Date.parse(a)) / 1000
}
