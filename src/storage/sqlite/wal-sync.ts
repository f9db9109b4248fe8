import { closeSync, fdatasync, openSync } from 'node:fs'
import { promisify } from 'node:util'

const datasync = promisify(fdatasync)

/**
 * Syncs what was committed to the write-ahead log of a SQLite file to disk. A thread of the pool does it: a disk may
 * be slow, and readers should not wait for it. Where the order of writes matters SQLite syncs by itself (synchronous
 * = normal).
 */
export class WalSync {
  readonly #path: string
  #log: number | undefined
  #failure: Error | undefined

  constructor(file: string) {
    this.#path = `${file}-wal`
  }

  /** @throws when the sync fails: the content of the disk is then unknown until SQLite reads it again */
  async sync(): Promise<void> {
    this.check()
    try {
      this.#log ??= openSync(this.#path, 'r+')
      await datasync(this.#log)
    } catch (cause) {
      const message =
        'The disk failed to store the write-ahead log: nothing more is written until the service is started again. Check the disk first'
      // The code SQLite would give if it synced this itself.
      this.#failure = Object.assign(new Error(message, { cause }), { code: 'SQLITE_IOERR_FSYNC' })
      throw this.#failure
    }
  }

  /** Called before anything is written or reported as stored. @throws when the disk has refused */
  check(): void {
    if (this.#failure) throw this.#failure
  }

  close(): void {
    if (this.#log !== undefined) closeSync(this.#log)
    this.#log = undefined
  }
}
