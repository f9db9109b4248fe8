const secondsIn: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 }

/** `10m` is ten minutes ago, a date alone its first moment in UTC. Anything else is for the service to read. */
export function momentOf(text: string, now: number = Date.now()): string {
  const [, count, unit] = /^(\d{1,5})([smhdw])$/.exec(text) ?? []
  if (count && unit) return new Date(now - Number(count) * secondsIn[unit]! * 1000).toISOString()
  return /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00:00Z` : text
}
