import { type Cipher, createCipher, encryptionKeyName } from '../../src/core/cipher.ts'
import { type EncryptedColumn, encryptedColumns } from '../../src/core/encrypted-columns.ts'
import { SetupError } from '../../src/core/errors.ts'
import type { TableShape } from '../../src/storage/backup/catalog.ts'
import type { Cell } from '../../src/storage/backup/row-pages.ts'
import { encryptionContext } from '../../src/storage/encrypted-values.ts'
import type { KnownKeys } from '../config.ts'
import { unmatchedKeys } from '../key-fingerprints.ts'
import type { Head } from './format.ts'

/** Of each encrypted column the number of values that do not open, as `webhooks.secret`; none of those that all open. */
export type Unreadable = Readonly<Record<string, number>>

/** What opens the values of these rows; undefined where the key is not known that they were written with. */
export function cipherFor(keys: Head['keys'], known: KnownKeys): Cipher | undefined {
  const { encryption } = known.secrets
  const { encryption: former } = known.previous
  const isOther = unmatchedKeys(keys, known).some(({ name }) => name === encryptionKeyName)
  if (encryption === undefined || isOther) return undefined
  return createCipher([encryption, ...(former === undefined ? [] : [former])])
}

/** Opens the encrypted values of rows that pass by. */
export class EncryptionCheck {
  readonly #cipher: Cipher
  readonly #unreadable: Record<string, number> = {}
  /** Values that name a key that is not known here; the others were changed, or belong to another row. */
  readonly #otherKey: Record<string, number> = {}

  constructor(cipher: Cipher) {
    this.#cipher = cipher
  }

  rows({ name: table, columns }: TableShape, rows: readonly (readonly Cell[])[]): void {
    for (const one of encryptedColumns as readonly EncryptedColumn[]) {
      if (one.table !== table) continue
      const at = (name: string) => columns.findIndex((column) => column.name === name)
      const value = at(one.column)
      const names = one.row.map((name) => [name, at(name)] as const)
      // An older schema does not have it.
      if (value === -1 || names.some(([, place]) => place === -1)) continue
      for (const row of rows) {
        const encrypted = row[value]
        // The reply of a request that was still running is empty.
        if (typeof encrypted !== 'string' || encrypted === '') continue
        const ids = Object.fromEntries(names.map(([name, place]) => [name, String(row[place])]))
        if (this.#cipher.tryDecrypt(encrypted, encryptionContext(one, ids)) !== undefined) continue
        const column = `${table}.${one.column}`
        this.#unreadable[column] = (this.#unreadable[column] ?? 0) + 1
        if (!this.#cipher.knows(encrypted)) this.#otherKey[column] = (this.#otherKey[column] ?? 0) + 1
      }
    }
  }

  get unreadable(): Unreadable {
    return this.#unreadable
  }

  /** A sentence about values that opened when the backup was made and do not now, and what to do. */
  fault(atBackup: Unreadable): string | undefined {
    for (const [column, count] of Object.entries(this.#unreadable)) {
      const known = atBackup[column] ?? 0
      if (count <= known) continue
      const more = count - known
      const values = `${more} ${more === 1 ? 'value' : 'values'} of ${column}`
      const [does, was] = more === 1 ? ['does', 'was'] : ['do', 'were']
      const why =
        (this.#otherKey[column] ?? 0) > 0
          ? `${was} encrypted with another key: set APP_ENCRYPTION_KEY_PREVIOUS to the key from before the last change, or restore another backup`
          : `${does} not open, because of a change or another row: restore another backup`
      return `${values} ${why}`
    }
    return undefined
  }
}

/** @throws SetupError */
export function assertEncryptedValues(
  file: string,
  check: EncryptionCheck | undefined,
  { atBackup, isRehearsal }: { atBackup: Unreadable; isRehearsal: boolean },
): void {
  const fault = check?.fault(atBackup)
  if (fault === undefined) return
  const anyway = isRehearsal
    ? ''
    : ` --without-keys ${encryptionKeyName} restores them as they are, unreadable.`
  throw new SetupError(`${file} is not restored: ${fault}.${anyway}`)
}
