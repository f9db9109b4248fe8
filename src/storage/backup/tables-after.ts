import Database from 'better-sqlite3'
import type { AnyDb } from '../columns.ts'
import type { Db } from '../db.ts'
import { type Migration, migrate } from '../migrate.ts'
import { SqliteConnection } from '../sqlite/connection.ts'
import { addFold } from '../sqlite/file.ts'
import { kyselyOver } from '../sqlite/kysely.ts'
import { listTables, type TableShape } from './catalog.ts'

/** The tables that these migrations make, found by applying them to a database in memory. */
export async function tablesAfter(migrations: readonly Migration[]): Promise<TableShape[]> {
  const database = new Database(':memory:')
  try {
    addFold(database)
    const db = kyselyOver(new SqliteConnection(database))
    const write = async <T>(work: (tx: Db) => Promise<T>): Promise<T> => {
      database.exec('begin')
      const result = await work(db)
      database.exec('commit')
      return result
    }
    await migrate({ dialect: 'sqlite', read: db, write }, migrations)
    return await listTables(db as AnyDb, 'sqlite')
  } finally {
    database.close()
  }
}
