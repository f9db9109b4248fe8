import { join } from 'node:path'
import Database from 'better-sqlite3'
import { vi } from 'vitest'
import { type CopyOptions, type CopySummary, copyDatabase, planCopy } from '../../../daemon/copy/copy.ts'
import type { CopyPass } from '../../../daemon/copy/pass.ts'
import { inEnvironmentOf, type Place } from '../backup/filled.ts'

/** How a target is named: a directory, or a URL of the environment. */
function named<T>(from: Place, to: Place, work: (options: CopyOptions) => Promise<T>): Promise<T> {
  return inEnvironmentOf(from, () => {
    if (to.databaseUrl === undefined) return work({ 'data-dir': from.dataDir, to: to.dataDir })
    vi.stubEnv('TARGET_DATABASE_URL', to.databaseUrl)
    return work({ 'data-dir': from.dataDir })
  })
}

export const copied = (from: Place, to: Place): Promise<CopySummary> =>
  named(from, to, (options) => copyDatabase(options, { onPlan() {}, onProgress() {} }))

export const planned = (from: Place, to: Place) => named(from, to, planCopy)

/** The files of the new installation: those of the old one stay where they are when it goes to Postgres. */
export const placeOf = (from: Place, to: Place): Place =>
  to.databaseUrl === undefined ? to : { dataDir: from.dataDir, databaseUrl: to.databaseUrl }

/** Changes rows of the source at a moment of the copy, in its own thread: between two chunks. */
export async function copiedWhile(
  from: Place,
  to: Place,
  change: (database: Database.Database, pass: CopyPass, done: number) => void,
) {
  const database = new Database(join(from.dataDir, 'svc.sqlite'))
  database.function('fold', (text) => text)
  try {
    return await inEnvironmentOf(from, () => {
      if (to.databaseUrl !== undefined) vi.stubEnv('TARGET_DATABASE_URL', to.databaseUrl)
      const options = { 'data-dir': from.dataDir, ...(to.databaseUrl === undefined && { to: to.dataDir }) }
      return copyDatabase(options, { onPlan() {}, onProgress: (pass, done) => change(database, pass, done) })
    })
  } finally {
    database.close()
  }
}
