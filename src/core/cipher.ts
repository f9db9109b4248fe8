import { createCipheriv, createDecipheriv, createHmac, hash, hkdfSync } from 'node:crypto'
import type { EncryptionContext } from './encrypted-columns.ts'
import { keyFingerprint } from './key-fingerprint.ts'
import { randomBytes } from './random.ts'

/**
 * Encryption at rest: AES-256-GCM. Stored as `v1.<key id>.<nonce>.<tag>.<ciphertext>`, base64url. `place`
 * (table.column.row) is authenticated, so a value copied to another row cannot be decrypted.
 */
export type Cipher = {
  encrypt(plain: string, place: EncryptionContext): string
  /** Throws when the value was altered, moved, or encrypted with a key that this cipher does not have. */
  decrypt(encrypted: string, place: EncryptionContext): string
  /** undefined where `decrypt` throws: one unreadable value is marked and does not block the values beside it. */
  tryDecrypt(encrypted: string, place: EncryptionContext): string | undefined
  /**
   * A fingerprint that is the same for the same text as long as the key is. Whoever has no key can neither make it nor guess
   * the text by it.
   */
  fingerprint(text: string): string
  /** False when the value names a key that this cipher does not have: another process may have it. */
  knows(encrypted: string): boolean
  /** Prefixes of the values that these keys can decrypt: `keyIdLength` characters each. */
  marks: readonly string[]
  /** Fingerprints of the keys, as recorded for the key that a database is used with. */
  prints: readonly string[]
  /** Number of failures of `tryDecrypt` since the start, by table and column. */
  unreadable: Map<string, number>
}

/** Length of the prefix `v1.<key id>.`. */
export const keyIdLength = 12

/** Name of the key in its recorded fingerprint. */
export const encryptionKeyName = 'APP_ENCRYPTION_KEY'

/** The first secret encrypts; all of them decrypt. `unreadable`: counts that an earlier cipher of the process has begun. */
export function createCipher(
  secrets: readonly [string, ...string[]],
  unreadable = new Map<string, number>(),
): Cipher {
  const keys = secrets.map((secret) => {
    const key = Buffer.from(hkdfSync('sha256', secret, '', 'svc encryption at rest', 32))
    return { key, id: hash('sha256', key, 'hex').slice(0, 8) }
  })
  const current = keys[0]!
  const printKey = Buffer.from(hkdfSync('sha256', secrets[0], '', 'svc fingerprints of values', 32))
  const marks = keys.map(({ id }) => `v1.${id}.`)
  const cipher: Cipher = {
    unreadable,
    marks,
    prints: secrets.map((secret) => keyFingerprint(encryptionKeyName, secret)),
    fingerprint: (text) => createHmac('sha256', printKey).update(text).digest('hex'),
    knows: (encrypted) => marks.includes(encrypted.slice(0, keyIdLength)),
    encrypt(plain, place) {
      const nonce = randomBytes(12)
      const gcm = createCipheriv('aes-256-gcm', current.key, nonce).setAAD(Buffer.from(place))
      const text = Buffer.concat([gcm.update(plain, 'utf8'), gcm.final()])
      const parts = [nonce, gcm.getAuthTag(), text].map((part) => part.toString('base64url'))
      return ['v1', current.id, ...parts].join('.')
    },
    decrypt(encrypted, place) {
      const [version, id, nonce = '', tag = '', text = ''] = encrypted.split('.')
      const found = keys.find((one) => one.id === id)
      if (version !== 'v1' || !found) throw new Error(`no key ${id ?? ''} to decrypt ${place}`)
      const gcm = createDecipheriv('aes-256-gcm', found.key, Buffer.from(nonce, 'base64url'), {
        authTagLength: 16,
      })
      gcm.setAAD(Buffer.from(place)).setAuthTag(Buffer.from(tag, 'base64url'))
      return gcm.update(text, 'base64url', 'utf8') + gcm.final('utf8')
    },
    tryDecrypt(encrypted, place) {
      try {
        return cipher.decrypt(encrypted, place)
      } catch {
        // The count is shown, and says more than one error would.
        const column = place.split('.', 2).join('.')
        unreadable.set(column, (unreadable.get(column) ?? 0) + 1)
        return undefined
      }
    },
  }
  return cipher
}
