/** Text that both databases can store: no lone surrogate, which Postgres refuses in JSON, and no NUL. */
export const toStorable = (text: string): string => text.toWellFormed().replaceAll('\u0000', '\uFFFD')

/** At most `most` UTF-16 units of a text, never ending in half of a surrogate pair. */
export function truncate(text: string, most: number): string {
  if (text.length <= most) return text
  const last = text.charCodeAt(most - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most)
}

/** The beginning of a text, in storable form. */
export const truncateStorable = (text: string, most: number): string => truncate(toStorable(text), most)
