/** A moment as ISO 8601 UTC text with milliseconds; sorts as text. */
export type Instant = string

export type Clock = () => Instant

/** The text is cached for the current millisecond: many calls fall into one. */
export const systemClock: Clock = () => {
  const now = Date.now()
  if (now !== at) [at, text] = [now, new Date(now).toISOString()]
  return text
}

let at = Number.NaN
let text: Instant = ''

/**
 * Milliseconds since 1970. The last result is cached: the same instant of a request is converted repeatedly.
 */
export function millisecondsOf(instant: Instant): number {
  if (instant !== parsed) [parsed, milliseconds] = [instant, Date.parse(instant)]
  return milliseconds
}

let parsed: Instant = ''
let milliseconds = Number.NaN

export function addSeconds(now: Instant, seconds: number): Instant {
  return new Date(millisecondsOf(now) + seconds * 1000).toISOString()
}

/** Largest clock difference between machines that share a database, in seconds. */
export const clockSkew = 300

/** Largest difference to the clock of an issuer of tokens, which others operate, in seconds. */
export const issuerClockSkew = 60

/** Seconds from `a` to `b`, negative when `b` is earlier. */
export function secondsBetween(a: Instant, b: Instant): number {
  return (Date.parse(b) - Date.parse(a)) / 1000
}
