import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import type { Database } from 'better-sqlite3'
import type { TableShape } from '../backup/catalog.ts'
import { markName } from '../backup/restore-mark.ts'
import type { Cell } from '../backup/row-pages.ts'
import type { RowLoader, TargetDriver, TargetState } from '../backup/target-driver.ts'
import { lockDirectory } from './directory-lock.ts'
import { openReader, openWriter, sqliteFile } from './file.ts'

export function sqliteRestore(dataDir: string): TargetDriver {
  const file = sqliteFile(dataDir)
  return {
    state: async () => stateOf(file),
    async lock() {
      mkdirSync(dataDir, { recursive: true, mode: 0o700 })
      const unlock = lockDirectory(dataDir)
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
    async load(work) {
      const database = openWriter(file)
      try {
        database.pragma('foreign_keys = off')
        return await work(loaderOf(database))
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

function loaderOf(database: Database): RowLoader {
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
    async insert(table, rows) {
      const insertion = insertions.get(table.name) ?? insertionOf(table)
      insertions.set(table.name, insertion)
      insertion(rows)
    },
    async end() {
      const check = database.prepare<[], { table: string; parent: string }>('pragma foreign_key_check')
      const broken = check.get()
      if (broken)
        throw new Error(`A row of ${broken.table} refers to a row of ${broken.parent} that is missing`)
    },
  }
}
