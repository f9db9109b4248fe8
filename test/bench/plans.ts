import { CompiledQuery, type DatabaseConnection, Kysely, PostgresDialect, type QueryCompiler } from 'kysely'
import pg from 'pg'
import { systemScope } from '../../src/core/scope.ts'
import { listDevices } from '../../src/devices/store.ts'
import type { ConditionGroup } from '../../src/filters/conditions/contract.ts'
import { previewFilter } from '../../src/filters/store.ts'
import { findDevices } from '../../src/search/store.ts'
import type { Db } from '../../src/storage/open.ts'
import { PostgresCompiler } from '../../src/storage/query/compilers.ts'
import { SqliteConnection } from '../../src/storage/sqlite/connection.ts'
import { openReader, sqliteFile } from '../../src/storage/sqlite/file.ts'
import { kyselyOver } from '../../src/storage/sqlite/kysely.ts'
import type { Place } from './world.ts'

type Listening = { db: Db; said: CompiledQuery[]; explain: string; close(): Promise<void> | void }

/** How the database goes about the main questions on a fleet, in its own words. */
export async function plansOf(place: Place, conditions: ConditionGroup): Promise<string[]> {
  const { db, said, explain, close } = place.databaseUrl ? onPostgres(place.databaseUrl) : onSqlite(place)
  const now = new Date().toISOString()
  const questions: Record<string, () => Promise<unknown>> = {
    preview: () => previewFilter(db, systemScope, conditions, { limit: 10, now }),
    'search for 004242': () => findDevices(db, systemScope, '004242', 5),
    'search for desk': () => findDevices(db, systemScope, 'desk', 5),
    'devices by cursor': () =>
      listDevices(db, systemScope, {
        page: 1,
        limit: 50,
        cursor: Buffer.from(JSON.stringify(['oslo', ''])).toString('base64url'),
      }),
  }
  const lines: string[] = []
  for (const [name, ask] of Object.entries(questions)) {
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
