/** What both databases can keep: no half of a surrogate pair, which is no JSON to Postgres, and no NUL. */
export const toStorable = (text: string): string => text.toWellFormed().replaceAll('\u0000', '\uFFFD')

/** At most so many UTF-16 units of a text, and never half of a surrogate pair. */
export function truncate(text: string, most: number): string {
  if (text.length <= most) return text
  const last = text.charCodeAt(most - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most)
}

/** The beginning of what can be stored of a text. */
export const truncateStorable = (text: string, most: number): string => truncate(toStorable(text), most)
