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

/** Milliseconds since 1970. What is asked over and over is the instant of a request. */
export function millisecondsOf(instant: Instant): number {
  if (instant !== asked) [asked, milliseconds] = [instant, Date.parse(instant)]
  return milliseconds
}

let asked: Instant = ''
let milliseconds = Number.NaN

export function addSeconds(now: Instant, seconds: number): Instant {
  return new Date(millisecondsOf(now) + seconds * 1000).toISOString()
}

/** How far the clocks of the machines that share a database may be apart, in seconds. */
export const clockSkew = 300

/** Seconds from `a` to `b`, negative when `b` is earlier. */
export function secondsBetween(a: Instant, b: Instant): number {
  return (Date.parse(b) - Date.parse(a)) / 1000
}
