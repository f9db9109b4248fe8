/** Used where a UUID is required and the original value is not one. */
export const zeroId = '00000000-0000-0000-0000-000000000000'

const guid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** The first eight digits of an id or more, with its dashes. */
export const idBeginning =
  /^[0-9a-f]{8}(?:(?:-[0-9a-f]{4}){0,2}-[0-9a-f]{0,4}|(?:-[0-9a-f]{4}){3}-[0-9a-f]{0,12})?$/

/** The first and the last id that begin so. */
export const idsFrom = (start: string): { first: string; last: string } => ({
  first: start + zeroId.slice(start.length),
  last: start + zeroId.slice(start.length).replaceAll('0', 'f'),
})

export const isId = (text: string): boolean => guid.test(text)
