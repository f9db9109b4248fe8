import { CompiledQuery, type DatabaseConnection, Kysely, PostgresDialect, type QueryCompiler } from 'kysely'
import pg from 'pg'
import type { Db } from '../../src/storage/open.ts'
import { PostgresCompiler } from '../../src/storage/query/compilers.ts'
import { SqliteConnection } from '../../src/storage/sqlite/connection.ts'
import { openReader, sqliteFile } from '../../src/storage/sqlite/file.ts'
import { kyselyOver } from '../../src/storage/sqlite/kysely.ts'
import type { Place } from './world.ts'

type Listening = { db: Db; said: CompiledQuery[]; explain: string; close(): Promise<void> | void }

/** How the database goes about questions, in its own words. */
export async function plansOf(
  place: Place,
  questionsOf: (db: Db) => Record<string, () => Promise<unknown>>,
): Promise<string[]> {
  const { db, said, explain, close } = place.databaseUrl ? onPostgres(place.databaseUrl) : onSqlite(place)
  const lines: string[] = []
  for (const [name, ask] of Object.entries(questionsOf(db))) {
    said.length = 0
    await ask()
    for (const query of said.splice(0)) {
      const { rows } = await db.executeQuery<Record<string, unknown>>(
        CompiledQuery.raw(`${explain} ${query.sql}`, [...query.parameters]),
      )
      const steps = rows.map((row) => String(row.detail ?? row['QUERY PLAN']))
      lines.push(`${name}: ${query.sql.slice(0, 60)}…`, ...steps.map((step) => `    ${step}`))
    }
  }
  await close()
  return lines
}

function onSqlite({ dataDir }: Place): Listening {
  const said: CompiledQuery[] = []
  const database = openReader(sqliteFile(dataDir))
  const connection = new SqliteConnection(database)
  const listening: DatabaseConnection = {
    executeQuery(query) {
      said.push(query)
      return connection.executeQuery(query)
    },
    streamQuery: () => connection.streamQuery(),
  }
  return {
    db: kyselyOver(listening),
    said,
    explain: 'explain query plan',
    close: () => void database.close(),
  }
}

class Dialect extends PostgresDialect {
  override createQueryCompiler(): QueryCompiler {
    return new PostgresCompiler()
  }
}

function onPostgres(databaseUrl: string): Listening {
  const said: CompiledQuery[] = []
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 })
  const db: Db = new Kysely({
    dialect: new Dialect({ pool }),
    log: (event) => void said.push(event.query),
  })
  return { db, said, explain: 'explain (analyze, timing off, costs off)', close: () => db.destroy() }
}
