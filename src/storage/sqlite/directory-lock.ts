import { join } from 'node:path'
import Database from 'better-sqlite3'
import { SetupError } from '../../core/errors.ts'

/**
 * Locks a data directory for one process: two that serve one SQLite file would each believe to be its only writer.
 * The operating system releases the lock when the process ends, however it ends. Returns a function that releases it
 * earlier.
 * @throws SetupError when another process holds it
 */
export function lockDirectory(dataDir: string): () => void {
  const database = new Database(join(dataDir, 'svc.lock'), { timeout: 0 })
  try {
    database.pragma('journal_mode = memory')
    database.exec('begin exclusive')
  } catch (error) {
    database.close()
    if (!(error instanceof Database.SqliteError) || error.code !== 'SQLITE_BUSY') throw error
    throw new SetupError(
      `Another svc serve uses ${dataDir}. Stop it first, or give this one a directory of its own with --data-dir.`,
    )
  }
  return () => database.close()
}
