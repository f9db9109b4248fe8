import { type Expression, type SqlBool, sql } from 'kysely'
import { type Cipher, encryptionKeyName, keyIdLength } from '../core/cipher.ts'
import { Problem } from '../core/errors.ts'
import type { Db } from './db.ts'

/*
 * While keys are changed one process after the other, some hold what was sealed with a key that others do not have. It is
 * theirs to work with: whoever cannot open it leaves it as it is.
 */

/** Whether the database is used with a key that this process does not have. */
export async function lacksCurrentKey(db: Db, { prints }: Pick<Cipher, 'prints'>): Promise<boolean> {
  const known = db.selectFrom('key_prints').select('print').where('name', '=', encryptionKeyName)
  const row = await known.executeTakeFirst()
  return row !== undefined && !prints.includes(row.print)
}

/**
 * What is sealed, opened; undefined when no process can.
 * @throws unavailable when another one can, where it is tried again
 */
export async function decryptOrUnavailable(
  db: Db,
  cipher: Cipher,
  sealed: string,
  place: string,
): Promise<string | undefined> {
  const plain = cipher.tryOpen(sealed, place)
  if (plain === undefined) await assertHasKey(db, cipher, sealed)
  return plain
}

/** @throws unavailable when this is sealed with a key that other processes have */
export async function assertHasKey(db: Db, cipher: Cipher, sealed: string): Promise<void> {
  if (cipher.knows(sealed) || !(await lacksCurrentKey(db, cipher))) return
  const message = 'The keys of the service are being changed: try again in a moment'
  throw new Problem('unavailable', message, { retryAfter: 2 })
}

/** That what is in a column was sealed with one of these keys (`Cipher.marks`). */
export const isEncryptedWith = (marks: readonly string[], column: string): Expression<SqlBool> =>
  sql<SqlBool>`substr(${sql.ref(column)}, 1, ${sql.lit(keyIdLength)}) in (${sql.join(marks)})`
