import { type Cipher, createCipher } from '../../src/core/cipher.ts'
import type { Config } from '../config.ts'

/** Encrypts with the current key, and opens what the previous one has encrypted. */
export const cipherOf = (
  { secrets, previous }: Pick<Config, 'secrets' | 'previous'>,
  unreadable?: Cipher['unreadable'],
): Cipher =>
  createCipher(
    [secrets.encryption, ...(previous.encryption === undefined ? [] : [previous.encryption])],
    unreadable,
  )
