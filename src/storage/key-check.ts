import { type Expression, type SqlBool, sql } from 'kysely'
import { type Cipher, encryptionKeyName, keyIdLength } from '../core/cipher.ts'
import type { EncryptionContext } from '../core/encrypted-columns.ts'
import { Problem } from '../core/errors.ts'
import type { Db } from './db.ts'

/*
 * While keys are rotated one process at a time, some processes hold values encrypted with a key that others lack. A
 * process that cannot open a value leaves it as it is.
 */

/** Whether the database uses a key that this process does not have. */
export async function lacksCurrentKey(db: Db, { prints }: Pick<Cipher, 'prints'>): Promise<boolean> {
  const known = db.selectFrom('key_prints').select('print').where('name', '=', encryptionKeyName)
  const row = await known.executeTakeFirst()
  return row !== undefined && !prints.includes(row.print)
}

/**
 * The opened value; undefined when no process can open it.
 * @throws unavailable when another process can: the caller tries again
 */
export async function decryptOrUnavailable(
  db: Db,
  cipher: Cipher,
  encrypted: string,
  place: EncryptionContext,
): Promise<string | undefined> {
  const plain = cipher.tryDecrypt(encrypted, place)
  if (plain === undefined) await assertHasKey(db, cipher, encrypted)
  return plain
}

/** @throws unavailable when this was encrypted with a key that other processes have */
export async function assertHasKey(db: Db, cipher: Cipher, encrypted: string): Promise<void> {
  if (cipher.knows(encrypted) || !(await lacksCurrentKey(db, cipher))) return
  const message = 'The keys of the service are being changed: try again in a moment'
  throw new Problem('unavailable', message, { retryAfter: 2 })
}

/** Whether the column's value was encrypted with one of these keys (`Cipher.marks`). */
export const isEncryptedWith = (marks: readonly string[], column: string): Expression<SqlBool> =>
  sql<SqlBool>`substr(${sql.ref(column)}, 1, ${sql.lit(keyIdLength)}) in (${sql.join(marks)})`
