import { sql } from 'kysely'
import type { Db } from './db.ts'
import { isSingleProcess } from './dialect.ts'
import type { Tables } from './schema/tables.ts'

/**
 * Lets one write at a time decide about a table, where what it decides shows only in several rows; who reads goes on
 * reading. On SQLite nothing is needed: writes run one by one.
 */
export async function lockTable(db: Db, table: keyof Tables): Promise<void> {
  if (isSingleProcess(db)) return
  await sql`lock table ${sql.table(table)} in share row exclusive mode`.execute(db)
}
