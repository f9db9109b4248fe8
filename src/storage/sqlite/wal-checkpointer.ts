import { Worker } from 'node:worker_threads'
import type { Database } from 'better-sqlite3'
import { packageModule } from '../../core/package-files.ts'
import type { WalStatus } from './wal-checkpointer-thread.ts'

const script = packageModule('src/storage/sqlite/wal-checkpointer-thread.ts')

/** Milliseconds between two checks of the log's length. */
export const pollMs = 20

/** Pages the log grows by before they are copied, 31 MiB: a page that many commits touch is copied once. */
export const checkpointFrames = 8000

/**
 * Pages of the log, 128 MiB, from which it is made to start over. Readers that overlap keep each other's part of the log:
 * without this it would start over only in a moment without any.
 */
export const maxFrames = 32_768

/**
 * Copies the write-ahead log back into the file (a checkpoint). No request should wait for that, so a thread does it,
 * started when there is first enough to copy. The log starts over only once it is copied to its end, and each write
 * moves the end: while the last pages are copied, the writer waits between two of its transactions.
 */
export class WalCheckpointer {
  readonly #file: string
  readonly #writer: Database
  readonly #status
  #thread: Worker | undefined
  #state: 'idle' | 'copying' | 'copied' | 'finishing' = 'idle'
  #finished: (() => void) | undefined
  /** Pending while the last pages are copied. */
  finishing: Promise<void> | undefined
  /** Length of the log when it was last copied. */
  #copiedLength = 0
  /** Length at which it is made to start over; twice as long after each attempt, which a long reader may defeat. */
  #restartAt = maxFrames
  #checkedAt = Number.NEGATIVE_INFINITY

  constructor(file: string, writer: Database) {
    this.#file = file
    this.#writer = writer
    this.#status = writer.prepare<[], WalStatus>('pragma wal_checkpoint(noop)')
  }

  /** The writer calls this after each of its transactions. */
  go(): void {
    try {
      if (this.#state === 'copied') this.#finish()
      else if (this.#state === 'idle' && this.#isDue()) this.#startCopying()
    } catch {
      // The pages are as safe in the log, and are copied after another transaction.
    }
  }

  async close(): Promise<void> {
    await this.#thread?.terminate()
  }

  #isDue(): boolean {
    const now = performance.now()
    if (now - this.#checkedAt < pollMs) return false
    this.#checkedAt = now
    const { log } = this.#status.get()!
    // The log has started over.
    if (log < this.#copiedLength) this.#copiedLength = 0
    return log - this.#copiedLength >= checkpointFrames
  }

  #startCopying(): void {
    this.#thread ??= this.#start()
    this.#state = 'copying'
    this.#thread.postMessage('copy')
  }

  #finish(): void {
    this.#state = 'finishing'
    this.finishing = new Promise((resolve) => {
      this.#finished = resolve
    })
    // The writer waits: the process must not end meanwhile.
    this.#thread!.ref()
    const { log } = this.#status.get()!
    this.#thread!.postMessage(log < this.#restartAt ? 'finish' : 'restart')
    if (log >= this.#restartAt) this.#restartAt = 2 * log
  }

  #start(): Worker {
    const thread = new Worker(script, { workerData: { file: this.#file } })
    thread.unref()
    thread.on('message', (status: WalStatus | undefined) => {
      // Seen of a thread that was ending: nothing is known of the log, and a later write asks again.
      if (status === undefined) return this.#becomeIdle()
      const { log } = status
      if (log < maxFrames) this.#restartAt = maxFrames
      if (this.#state === 'copying') {
        this.#state = 'copied'
        if (!this.#writer.inTransaction) this.go()
      } else {
        this.#copiedLength = log
        this.#becomeIdle()
      }
    })
    // Whatever stopped it, the next thread tries again; until then SQLite itself copies a very long log.
    thread.on('error', () => {})
    thread.on('exit', () => {
      this.#thread = undefined
      this.#becomeIdle()
    })
    return thread
  }

  #becomeIdle(): void {
    this.#state = 'idle'
    this.#thread?.unref()
    this.finishing = undefined
    this.#finished?.()
  }
}
