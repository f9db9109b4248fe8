import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import { SetupError } from '../../core/errors.ts'
import { makePrivate } from '../private-file.ts'

/*
 * The last part of a copy holds a lock on a file beside the database, which ends with its process however that ends. A service
 * that sees it refuses writes by itself, instead of waiting for the write lock in the thread that serves requests.
 */

const fileOf = (dataDir: string): string => join(dataDir, 'svc.copy')

/** @throws SetupError when another copy has it */
export function lockForCopy(dataDir: string): () => void {
  try {
    const database = exclusive(dataDir, 1000)
    return () => {
      rmSync(fileOf(dataDir), { force: true })
      database.close()
    }
  } catch (error) {
    if (!isBusy(error)) throw error
    throw new SetupError(
      `Another svc db copy is in its last part on ${dataDir}: wait for it to end, or end its process if it hangs.`,
    )
  }
}

export function isLockedForCopy(dataDir: string): boolean {
  if (!existsSync(fileOf(dataDir))) return false
  try {
    exclusive(dataDir, 0).close()
    return false
  } catch (error) {
    return isBusy(error)
  }
}

const isBusy = (error: unknown): boolean => (error as { code?: string }).code === 'SQLITE_BUSY'

function exclusive(dataDir: string, timeout: number): Database.Database {
  makePrivate(fileOf(dataDir))
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
