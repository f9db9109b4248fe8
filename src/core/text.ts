/** What both databases can keep: no half of a surrogate pair, which is no JSON to Postgres, and no NUL. */
export const storable = (text: string): string => text.toWellFormed().replaceAll('\u0000', '\uFFFD')

/** At most so many UTF-16 units of what can be stored, and never half of a surrogate pair. */
export function cut(text: string, most: number): string {
  const whole = storable(text)
  if (whole.length <= most) return whole
  const last = whole.charCodeAt(most - 1)
  return whole.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most)
}
