import { statSync } from 'node:fs'
import type { Database } from 'better-sqlite3'

type Identity = { path: string; dev: number; ino: number }

/**
 * The files of a database as they were opened. A file that is moved or deleted stays open in this process, which would
 * then confirm writes that are lost when it ends.
 */
export class OpenFiles {
  readonly #writer: Database
  readonly #database: Identity
  readonly #log: Identity
  #isCheckpointed = false

  /** Call it after the first read, which makes SQLite open the log. */
  constructor(file: string, writer: Database) {
    this.#writer = writer
    this.#database = identityOf(file)
    this.#log = identityOf(`${file}-wal`)
  }

  /** Called before a write is confirmed. @throws SQLITE_READONLY_DBMOVED when a file is no longer at its path */
  check(): void {
    const moved = [this.#database, this.#log].filter((one) => !isThere(one))
    if (moved.length === 0) return
    const message = `${moved.map(({ path }) => path).join(' and ')} was moved, deleted or replaced`
    throw Object.assign(new Error(message), { code: 'SQLITE_READONLY_DBMOVED' })
  }

  /** The same between two transactions; copies what only a deleted log holds into the file first. */
  checkBetweenWrites(): void {
    try {
      this.check()
    } catch (error) {
      if (!this.#isCheckpointed && isThere(this.#database) && isUnused(this.#log.path)) {
        this.#writer.pragma('wal_checkpoint(full)')
        this.#isCheckpointed = true
      }
      throw error
    }
  }
}

function identityOf(path: string): Identity {
  const { dev, ino } = statSync(path)
  return { path, dev, ino }
}

/** A file that cannot be looked at (in a folder without access) counts as present. */
function isThere({ path, dev, ino }: Identity): boolean {
  try {
    const found = statSync(path, { throwIfNoEntry: false })
    return found?.dev === dev && found.ino === ino
  } catch {
    // A folder without access is no sign that the file was replaced.
    return true
  }
}

/** A new log that is not empty has pages of another process, which a checkpoint must not overwrite. */
const isUnused = (path: string): boolean => (statSync(path, { throwIfNoEntry: false })?.size ?? 0) === 0
