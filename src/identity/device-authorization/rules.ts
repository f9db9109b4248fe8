import { randomInt } from 'node:crypto'

/** Time in which a person has to find a browser. */
export const authorizationSeconds = 10 * 60
export const pollSeconds = 5

/** Neither vowels, which make words, nor letters and digits that look alike (RFC 8628, section 6.1). */
const alphabet = 'BCDFGHJKLMNPQRSTVWXZ'
const letters = 8

/** A code for a person to type: 20^8 possibilities, of which an account may try twenty in five minutes (DEVICE_CODE). */
export function newUserCode(): string {
  const code = Array.from({ length: letters }, () => alphabet[randomInt(alphabet.length)]).join('')
  return `${code.slice(0, 4)}-${code.slice(4)}`
}

/** The same text for all ways to type a code: in lower case, without the dash, with blanks. */
export const foldUserCode = (typed: string): string => typed.toUpperCase().replace(/[^A-Z]/g, '')
