import { join } from 'node:path'
import Database from 'better-sqlite3'
import { SetupError } from '../core/errors.ts'
import { makePrivate } from './private-file.ts'

/**
 * Locks a data directory for one process: two that serve one SQLite file would each believe to be its only writer.
 * The operating system releases the lock when the process ends, however it ends. Returns a function that releases it
 * earlier.
 * @throws SetupError when another process holds it
 */
export function lockDirectory(
  dataDir: string,
  inUse = `Another svc serve uses ${dataDir}. Stop it first, or give this one a directory of its own with --data-dir.`,
): () => void {
  let database: Database.Database | undefined
  try {
    const file = join(dataDir, 'svc.lock')
    makePrivate(file)
    database = new Database(file, { timeout: 0 })
    database.pragma('journal_mode = memory')
    database.exec('begin exclusive')
  } catch (error) {
    database?.close()
    throw refusal(error, dataDir, inUse)
  }
  return () => database.close()
}

function refusal(error: unknown, dataDir: string, inUse: string): unknown {
  const code = error instanceof Database.SqliteError ? error.code : ''
  if (code === 'SQLITE_BUSY') return new SetupError(inUse)
  if (code === 'SQLITE_CANTOPEN' || code.startsWith('SQLITE_READONLY'))
    return new SetupError(
      `Cannot open ${join(dataDir, 'svc.lock')} for writing. Run svc serve as the user whom the directory belongs to.`,
    )
  return error
}
