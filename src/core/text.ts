/** Text that both databases can store: no lone surrogate, which Postgres refuses in JSON, and no NUL. */
export const toStorable = (text: string): string => text.toWellFormed().replaceAll('\u0000', '\uFFFD')

/** At most `max` UTF-16 units of a text, never ending in half of a surrogate pair. */
export function truncate(text: string, max: number): string {
  if (text.length <= max) return text
  const last = text.charCodeAt(max - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? max - 1 : max)
}

/** The beginning of a text, in storable form. */
export const truncateStorable = (text: string, max: number): string => truncate(toStorable(text), max)
