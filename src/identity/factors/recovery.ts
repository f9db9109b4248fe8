import { createHash, randomInt } from 'node:crypto'

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'
const part = () => Array.from({ length: 4 }, () => alphabet[randomInt(alphabet.length)]).join('')

/** Ten codes such as `7QX2-M0KD`. */
export const newRecoveryCodes = (): string[] => Array.from({ length: 10 }, () => `${part()}-${part()}`)

export const isRecoveryCodeFormat = (code: string): boolean => /^[A-Z0-9]{4}-[A-Z0-9]{4}$/i.test(code)

/** Stored form: SHA-256 of the pepper and the upper-case code. */
export const recoveryHash = (pepper: string, code: string): string =>
  createHash('sha256').update(`${pepper}:${code.toUpperCase()}`).digest('hex')
