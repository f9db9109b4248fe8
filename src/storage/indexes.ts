import { sql } from 'kysely'
import type { AnyDb, Index } from './columns.ts'

function creation({ name, table, columns, unique, where }: Index, how: '' | 'concurrently ') {
  const condition = where === undefined ? '' : ` where ${where}`
  const text = `(${columns.join(', ')})${condition}`
  return sql`create ${sql.raw(unique ? 'unique ' : '')}index ${sql.raw(how)}${sql.id(name)} on ${sql.table(table)} ${sql.raw(text)}`
}

export async function createIndex(db: AnyDb, index: Index): Promise<void> {
  await creation(index, '').execute(db)
}

/**
 * Builds an index on Postgres while others write to the table, outside a transaction. One that an earlier attempt has
 * finished stays; one that it left invalid is built again.
 */
export async function createIndexConcurrently(db: AnyDb, index: Index): Promise<void> {
  const { rows } = await sql<{ valid: number }>`
    select indisvalid as valid from pg_index where indexrelid = to_regclass(${index.name})`.execute(db)
  const [found] = rows
  if (found?.valid === 1) return
  if (found) await drop(db, index)
  try {
    await creation(index, 'concurrently ').execute(db)
  } catch (error) {
    // An invalid index is not read, and yet every write maintains it, and a unique one refuses rows.
    // One that stays is dropped by the next run; the reason of this failure is what matters.
    await drop(db, index).catch(() => {})
    throw error
  }
}

const drop = (db: AnyDb, { name }: Index) =>
  sql`drop index concurrently if exists ${sql.id(name)}`.execute(db)
