import { existsSync, renameSync, rmSync } from 'node:fs'
import type { Database } from 'better-sqlite3'
import { sql } from 'kysely'
import { makeFolder } from '../../core/make-folder.ts'
import type { TableShape } from '../backup/catalog.ts'
import { markName } from '../backup/restore-mark.ts'
import type { Cell } from '../backup/row-pages.ts'
import type { DroppedConstraints, RowLoader, TargetDriver, TargetState } from '../backup/target-driver.ts'
import type { AnyDb } from '../columns.ts'
import { lockDirectory } from '../directory-lock.ts'
import { SqliteConnection } from './connection.ts'
import { inUse, openReader, openWriter, sqliteFile } from './file.ts'
import { kyselyOver } from './kysely.ts'

export function sqliteRestore(dataDir: string): TargetDriver {
  const file = sqliteFile(dataDir)
  return {
    state: async () => stateOf(file),
    async lock() {
      makeFolder(dataDir)
      const unlock = lockDirectory(dataDir, inUse(dataDir))
      return async () => unlock()
    },
    async begin() {
      const state = stateOf(file)
      if (state === 'used') return state
      // The new file takes the place of the one before at once, so that there is none without the mark.
      const fresh = `${file}.restore`
      removeFile(fresh)
      const database = openWriter(fresh)
      database.exec(`create table ${markName} (since text not null)`)
      database.pragma('wal_checkpoint(truncate)')
      database.close()
      rmSync(`${file}-wal`, { force: true })
      rmSync(`${file}-shm`, { force: true })
      renameSync(fresh, file)
      return state
    },
    async load(work, droppedConstraints) {
      const database = openWriter(file)
      try {
        database.pragma('foreign_keys = off')
        const db = kyselyOver(new SqliteConnection(database)) as AnyDb
        const loader = loaderOf(database, db)
        if (droppedConstraints === undefined) return await work(loader)
        const back =
          (await droppedConstraints.read(db)) ??
          (await loader.transaction(() => takeOffGuards(db, droppedConstraints)))
        return await work({
          ...loader,
          async end() {
            for (const statement of back) database.exec(statement)
            await loader.end()
          },
        })
      } finally {
        database.close()
      }
    },
  }
}

function removeFile(file: string): void {
  for (const suffix of ['', '-wal', '-shm']) rmSync(`${file}${suffix}`, { force: true })
}

function stateOf(file: string): TargetState {
  if (!existsSync(file)) return 'empty'
  const database = openReader(file)
  try {
    const names = database.prepare("select name from sqlite_schema where type = 'table'").pluck().all()
    if (names.length === 0) return 'empty'
    return names.includes(markName) ? 'unfinished' : 'used'
  } finally {
    database.close()
  }
}

/** Triggers that refuse changes: a row of the source may be read again, and be gone by then. */
async function takeOffGuards(db: AnyDb, droppedConstraints: DroppedConstraints): Promise<string[]> {
  const { rows } = await sql<{ name: string; sql: string }>`
    select name, sql from sqlite_schema where type = 'trigger' and sql like '%raise(%'`.execute(db)
  for (const { name } of rows) await sql`drop trigger ${sql.id(name)}`.execute(db)
  const statements = rows.map((one) => one.sql)
  await droppedConstraints.keep(db, statements)
  return statements
}

function loaderOf(database: Database, db: AnyDb): RowLoader {
  const quoted = (name: string) => `"${name}"`
  const insertions = new Map<string, (rows: readonly Cell[][]) => void>()
  const insertionOf = ({ name, columns }: TableShape) => {
    const places = columns.map(() => '?').join()
    const names = columns.map((column) => quoted(column.name)).join()
    const insert = database.prepare(`insert into ${quoted(name)} (${names}) values (${places})`)
    return database.transaction((rows: readonly Cell[][]) => {
      for (const row of rows) insert.run(row)
    })
  }
  return {
    db,
    async transaction(work) {
      database.exec('begin immediate')
      try {
        const result = await work()
        database.exec('commit')
        return result
      } catch (error) {
        if (database.inTransaction) database.exec('rollback')
        throw error
      }
    },
    async insert(table, rows) {
      const insertion = insertions.get(table.name) ?? insertionOf(table)
      insertions.set(table.name, insertion)
      insertion(rows)
    },
    async end() {
      const check = database.prepare<[], { table: string; parent: string }>('pragma foreign_key_check')
      const broken = check.get()
      if (broken)
        throw Object.assign(
          new Error(`A row of ${broken.table} refers to a row of ${broken.parent} that is missing`),
          { code: 'SQLITE_CONSTRAINT_FOREIGNKEY' },
        )
    },
  }
}
