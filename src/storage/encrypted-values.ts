import { sql } from 'kysely'
import type { Cipher } from '../core/cipher.ts'
import { type EncryptedColumn, type EncryptionContext, encryptedColumns } from '../core/encrypted-columns.ts'
import type { Storage } from './db.ts'
import { isEncryptedWith } from './key-check.ts'

export type UnreadableColumn = {
  /** `webhooks.secret` */
  column: string
  /** Values sealed with a key that is not in the ring. */
  otherKey: number
  /** Values of a sample that name a key of the ring and do not open: they were changed. */
  damaged: number
}

/** Values of each column that are opened to see whether they can be. */
const sampleSize = 100

/** The columns whose values do not all open with these keys, with their counts. */
export async function findUnreadable(
  { heavy }: Pick<Storage, 'heavy'>,
  cipher: Cipher,
): Promise<UnreadableColumn[]> {
  const found: UnreadableColumn[] = []
  for (const one of encryptedColumns) {
    const otherKey = await countOtherKeys(heavy, cipher, one)
    const damaged = await countDamaged(heavy, cipher, one)
    if (otherKey > 0 || damaged > 0) found.push({ column: `${one.table}.${one.column}`, otherKey, damaged })
  }
  return found
}

// The reply of a request that is still running is empty.
const hasValue = (column: string) => sql<boolean>`${sql.ref(column)} <> ''`

async function countOtherKeys(
  db: Storage['heavy'],
  { marks }: Cipher,
  { table, column }: EncryptedColumn,
): Promise<number> {
  const { rows } = await sql<{ count: number | string }>`
    select count(*) as count from ${sql.table(table)}
    where ${hasValue(column)} and not ${isEncryptedWith(marks, column)}`.execute(db)
  return Number(rows[0]!.count)
}

async function countDamaged(
  db: Storage['heavy'],
  cipher: Cipher,
  { table, column, row }: EncryptedColumn,
): Promise<number> {
  const { rows } = await sql<Record<string, string>>`
    select ${sql.join([column, ...row].map((name) => sql.ref(name)))} from ${sql.table(table)}
    where ${hasValue(column)} and ${isEncryptedWith(cipher.marks, column)}
    limit ${sql.lit(sampleSize)}`.execute(db)
  const placeOf = (values: Record<string, string>) =>
    [table, column, ...row.map((name) => values[name])].join('.') as EncryptionContext
  return rows.filter((values) => cipher.tryOpen(values[column]!, placeOf(values)) === undefined).length
}
