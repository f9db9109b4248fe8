import { Worker } from 'node:worker_threads'
import type { Database } from 'better-sqlite3'
import type { Log } from './log-copier-thread.ts'

const script = new URL(
  import.meta.url.endsWith('.ts') ? './log-copier-thread.ts' : './log-copier-thread.js',
  import.meta.url,
)

/** Pages the log grows by before they are copied, 31 MiB: one that many commits touch is copied once. */
export const span = 8000

/**
 * Copies the write-ahead log back into the file (a checkpoint). No request should wait for that, so a thread does
 * it, started when there is first enough to copy. The log starts over only once it is copied to its end, which
 * moves as long as there are writes: the last pages are copied by the writer, between two of its transactions.
 */
export class LogCopier {
  readonly #file: string
  readonly #writer: Database
  readonly #look
  readonly #copy
  #thread: Worker | undefined
  #state: 'resting' | 'copying' | 'copied' = 'resting'
  /** How long the log was when it was last copied. */
  #known = 0

  constructor(file: string, writer: Database) {
    this.#file = file
    this.#writer = writer
    this.#look = writer.prepare<[], Log>('pragma wal_checkpoint(noop)')
    this.#copy = writer.prepare<[], Log>('pragma wal_checkpoint(passive)')
  }

  /** The writer calls it after each of its transactions. What cannot be copied now is as safe in the log. */
  go(): void {
    try {
      if (this.#state === 'copied') this.#finish()
      else if (this.#state === 'resting' && this.#isDue()) this.#ask()
    } catch {}
  }

  async close(): Promise<void> {
    await this.#thread?.terminate()
  }

  #isDue(): boolean {
    const { log } = this.#look.get()!
    // It has started over.
    if (log < this.#known) this.#known = 0
    return log - this.#known >= span
  }

  #ask(): void {
    this.#thread ??= this.#start()
    this.#state = 'copying'
    this.#thread.postMessage('copy')
  }

  #start(): Worker {
    const thread = new Worker(script, { workerData: { file: this.#file } })
    thread.unref()
    thread.on('message', () => {
      this.#state = 'copied'
      if (!this.#writer.inTransaction) this.go()
    })
    // Whatever stopped it, the next one tries again; until then SQLite copies a log that is very long by itself.
    thread.on('error', () => {})
    thread.on('exit', () => {
      this.#thread = undefined
      this.#state = 'resting'
    })
    return thread
  }

  #finish(): void {
    this.#state = 'resting'
    this.#known = this.#copy.get()!.log
  }
}
