import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import Database from 'better-sqlite3'

/*
 * The last part of a copy holds a lock on a file beside the database, which ends with its process however that ends. A service
 * that sees it refuses writes by itself, instead of waiting for the write lock in the thread that serves requests.
 */

const fileOf = (dataDir: string): string => join(dataDir, 'svc.copy')

/** @throws SQLITE_BUSY when another copy has it */
export function lockForCopy(dataDir: string): () => void {
  const database = exclusive(dataDir, 1000)
  return () => {
    rmSync(fileOf(dataDir), { force: true })
    database.close()
  }
}

export function isLockedForCopy(dataDir: string): boolean {
  if (!existsSync(fileOf(dataDir))) return false
  try {
    exclusive(dataDir, 0).close()
    return false
  } catch (error) {
    return (error as { code?: string }).code === 'SQLITE_BUSY'
  }
}

function exclusive(dataDir: string, timeout: number): Database.Database {
  const database = new Database(fileOf(dataDir), { timeout })
  try {
    database.pragma('journal_mode = memory')
    database.exec('begin exclusive')
    return database
  } catch (error) {
    database.close()
    throw error
  }
}
