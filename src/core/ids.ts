/** Used where a UUID is required and the original value is not one. */
export const zeroId = '00000000-0000-0000-0000-000000000000'

const guid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

export const isId = (text: string): boolean => guid.test(text)
