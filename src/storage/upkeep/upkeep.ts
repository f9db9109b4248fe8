import type { ReadStorage } from '../db.ts'
import { type PostgresUpkeep, postgresUpkeep } from './postgres.ts'
import { type SqliteUpkeep, sqliteUpkeep } from './sqlite.ts'

/** What makes a database slower with time, and what its own maintenance has left undone. */
export type Upkeep = ({ kind: 'postgres' } & PostgresUpkeep) | ({ kind: 'sqlite' } & SqliteUpkeep)

export async function upkeepOf({ dialect, heavy }: ReadStorage): Promise<Upkeep> {
  return dialect === 'sqlite'
    ? { kind: 'sqlite', ...(await sqliteUpkeep(heavy)) }
    : { kind: 'postgres', ...(await postgresUpkeep(heavy)) }
}
