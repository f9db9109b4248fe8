import { sql } from 'kysely'
import type { Db } from '../db.ts'

export type SqliteUpkeep = {
  /** Whether the planner knows how many rows the tables have. */
  isAnalyzed: boolean
}

export async function sqliteUpkeep(db: Db): Promise<SqliteUpkeep> {
  const { rows } = await sql<{ found: number }>`
    select count(*) as found from sqlite_schema where name = 'sqlite_stat1'`.execute(db)
  return { isAnalyzed: rows[0]!.found > 0 }
}
