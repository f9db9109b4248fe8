import { sql } from 'kysely'
import type { Db } from './db.ts'
import { isPostgres } from './query/prepared.ts'
import type { Tables } from './schema/tables.ts'

/**
 * Lets one write at a time decide about a table, where the decision depends on several rows; readers are not blocked.
 * SQLite needs no lock: its writes run one at a time.
 */
export async function lockTable(db: Db, table: keyof Tables): Promise<void> {
  if (!isPostgres(db.getExecutor())) return
  await sql`lock table ${sql.table(table)} in share row exclusive mode`.execute(db)
}
