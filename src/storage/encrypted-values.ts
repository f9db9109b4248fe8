import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely'
import type { Cipher } from '../core/cipher.ts'
import { type EncryptedColumn, type EncryptionContext, encryptedColumns } from '../core/encrypted-columns.ts'
import { isLockTimeout } from './database-errors.ts'
import type { ReadStorage, Storage } from './db.ts'
import { isEncryptedWith } from './key-check.ts'

export type UnreadableColumn = {
  /** `webhooks.secret` */
  column: string
  /** Values encrypted with a key that the service does not have. */
  otherKey: number
  /** Values of a sample that name a key of the service and do not open: they were changed. */
  damaged: number
}

/** Values of each column that are opened to see whether they can be. */
const sampleSize = 100

/** The columns whose values do not all open with these keys, with their counts. */
export async function findUnreadable({ heavy }: Reader, cipher: Cipher): Promise<UnreadableColumn[]> {
  const found: UnreadableColumn[] = []
  for (const one of encryptedColumns) {
    const otherKey = await countValues(heavy, one, otherThan(cipher.marks))
    const damaged = await countDamaged(heavy, cipher, one)
    if (otherKey > 0 || damaged > 0) found.push({ column: `${one.table}.${one.column}`, otherKey, damaged })
  }
  return found
}

type Reader = Pick<ReadStorage, 'heavy'>

/** Number of values that were encrypted with a key that the service does not have. */
export async function countEncryptedWithOtherKeys({ heavy }: Reader, { marks }: Cipher): Promise<number> {
  let count = 0
  for (const one of encryptedColumns) count += await countValues(heavy, one, otherThan(marks))
  return count
}

/** Number of values that were encrypted with a key of the service. */
export async function countEncryptedWith({ heavy }: Reader, { marks }: Cipher): Promise<number> {
  let count = 0
  for (const one of encryptedColumns)
    count += await countValues(heavy, one, (column) => isEncryptedWith(marks, column))
  return count
}

// The reply of a request that is still running is empty.
const hasValue = (column: string) => sql<boolean>`${sql.ref(column)} <> ''`

/** Where a value is, given those columns of its row that name it. */
export const encryptionContext = (
  { table, column, row }: EncryptedColumn,
  values: Readonly<Record<string, string>>,
): EncryptionContext => [table, column, ...row.map((name) => values[name])].join('.') as EncryptionContext

const otherThan =
  (marks: Cipher['marks']) =>
  (column: string): Expression<SqlBool> =>
    sql<SqlBool>`(${hasValue(column)} and not ${isEncryptedWith(marks, column)})`

async function countValues(
  db: Storage['heavy'],
  { table, column }: EncryptedColumn,
  isCounted: (column: string) => Expression<SqlBool>,
): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*) as count from ${sql.table(table)} where ${isCounted(column)}`.execute(db)
  return rows[0]!.count
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
  return rows.filter(
    (values) =>
      cipher.tryDecrypt(values[column]!, encryptionContext({ table, column, row }, values)) === undefined,
  ).length
}

/** Values resealed in one transaction. */
const batchSize = 50

export type Resealed = {
  resealed: number
  /** Values that no key of the service decrypts: they stay as they are. */
  unreadable: number
  /** Values whose rows another session keeps locked: a second run finds them. */
  locked: number
}

/**
 * Encrypts with the current key every value that a former one has encrypted, also while the service changes them.
 * `onProgress` gets the number of values looked at so far.
 */
export async function reseal(
  storage: Storage,
  cipher: Cipher,
  onProgress: (count: number) => void,
): Promise<Resealed> {
  const total: Resealed = { resealed: 0, unreadable: 0, locked: 0 }
  for (const column of encryptedColumns) {
    for (let after: StoredValue | undefined; ; ) {
      const batch = await storedWithOtherKey(storage.heavy, cipher, column, after)
      const done = await resealBatch(storage, cipher, column, batch)
      total.resealed += done.resealed
      total.unreadable += done.unreadable
      total.locked += done.locked
      onProgress(total.resealed + total.unreadable + total.locked)
      after = batch.at(-1)
      if (batch.length < batchSize) break
    }
  }
  return total
}

type StoredValue = {
  encrypted: string
  context: EncryptionContext
  isRow: RawBuilder<boolean>
  /** The values of `EncryptedColumn.row`. */
  row: RawBuilder<unknown>
}

/** The next values that the current key has not encrypted, in the order of their rows. */
async function storedWithOtherKey(
  db: Storage['heavy'],
  { marks }: Cipher,
  { table, column, row }: EncryptedColumn,
  after: StoredValue | undefined,
): Promise<StoredValue[]> {
  const refs = sql.join(row.map((name) => sql.ref(name)))
  // A table without such columns has one row.
  const isNext = after === undefined || row.length === 0 ? sql`` : sql`and (${refs}) > (${after.row})`
  const order = row.length === 0 ? sql`` : sql`order by ${refs}`
  const { rows } = await sql<Record<string, string>>`
    select ${sql.join([column, ...row].map((name) => sql.ref(name)))} from ${sql.table(table)}
    where ${otherThan(marks.slice(0, 1))(column)} ${isNext}
    ${order} limit ${sql.lit(batchSize)}`.execute(db)
  return rows.map((values) => {
    const keys = row.map((name) => sql<boolean>`${sql.ref(name)} = ${values[name]}`)
    const encrypted = values[column]!
    return {
      encrypted,
      context: encryptionContext({ table, column, row }, values),
      isRow: sql<boolean>`${sql.join([sql`${sql.ref(column)} = ${encrypted}`, ...keys], sql` and `)}`,
      row: sql.join(row.map((name) => values[name])),
    }
  })
}

async function resealBatch(
  storage: Storage,
  cipher: Cipher,
  { table, column }: EncryptedColumn,
  batch: readonly StoredValue[],
): Promise<Resealed> {
  const opened = batch.map((value) => ({
    ...value,
    plain: cipher.tryDecrypt(value.encrypted, value.context),
  }))
  const readable = opened.flatMap(({ plain, ...value }) => (plain === undefined ? [] : [{ ...value, plain }]))
  const unreadable = batch.length - readable.length
  if (readable.length === 0) return { resealed: 0, unreadable, locked: 0 }
  try {
    await storage.write(
      async (tx) => {
        for (const { plain, context, isRow } of readable) {
          // Only if it still is the value that was read.
          await sql`update ${sql.table(table)} set ${sql.ref(column)} = ${cipher.encrypt(plain, context)} where ${isRow}`.execute(
            tx,
          )
        }
      },
      { lockMs: 1000 },
    )
    return { resealed: readable.length, unreadable, locked: 0 }
  } catch (error) {
    if (!isLockTimeout(error)) throw error
    return { resealed: 0, unreadable, locked: readable.length }
  }
}
