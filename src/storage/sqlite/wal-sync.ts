import { closeSync, fdatasync, openSync } from 'node:fs'
import { promisify } from 'node:util'

const datasync = promisify(fdatasync)

/**
 * Puts what was committed to the write-ahead log of a SQLite file on the disk. A thread of the pool does it: a disk may
 * take its time, and who only reads should not wait for that. Where the order of writes matters SQLite syncs by itself
 * (synchronous = normal).
 */
export class WalSync {
  readonly #path: string
  #log: number | undefined
  #failure: Error | undefined

  constructor(file: string) {
    this.#path = `${file}-wal`
  }

  /** @throws when the disk refuses: what it holds is not known then until SQLite reads it anew */
  async sync(): Promise<void> {
    this.check()
    try {
      this.#log ??= openSync(this.#path, 'r+')
      await datasync(this.#log)
    } catch (cause) {
      const said =
        'The disk did not keep what was written: nothing more is, until the service is started again'
      // As SQLite would call it, did it sync this itself.
      this.#failure = Object.assign(new Error(said, { cause }), { code: 'SQLITE_IOERR_FSYNC' })
      throw this.#failure
    }
  }

  /** Asked before anything is written or said to be kept. @throws when the disk has refused */
  check(): void {
    if (this.#failure) throw this.#failure
  }

  close(): void {
    if (this.#log !== undefined) closeSync(this.#log)
    this.#log = undefined
  }
}
