import { Worker } from 'node:worker_threads'
import type { CompiledQuery, DatabaseConnection, QueryResult } from 'kysely'
import { packageModule } from '../../core/package-files.ts'
import type { PoolUsage } from '../observer.ts'
import { currentTrace, type Trace } from '../trace.ts'
import type { ReaderData, ReaderReply } from './reader-thread.ts'

const script = packageModule('src/storage/sqlite/reader-thread.ts')

/** Milliseconds a close waits for queries that are still running in a thread. */
const closePatience = 5000

/**
 * Read-only connections in threads of their own, started on first use. A query goes to the thread with the fewest
 * waiting, so a long one delays the next only when every thread is busy.
 */
export class ReaderPool implements DatabaseConnection {
  readonly #readers: Reader[]
  #closed = false

  /** `timeoutMs`: time limit of a query, from when its thread starts it. */
  constructor(file: string, threads: number, { timeoutMs, onQuery = () => {} }: ReaderSettings = {}) {
    this.#readers = Array.from({ length: threads }, () => new Reader({ file, timeoutMs }, onQuery))
  }

  usage(): PoolUsage {
    const busy = this.#readers.filter(({ waiting }) => waiting > 0)
    const asked = busy.reduce((sum, { waiting }) => sum + waiting, 0)
    return { limit: this.#readers.length, inUse: busy.length, waiting: asked - busy.length }
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    if (this.#closed) throw new Error('The storage is closed')
    const reader = this.#readers.reduce((a, b) => (b.waiting < a.waiting ? b : a))
    return { rows: (await reader.run(query.sql, query.parameters)) as R[] }
  }

  // biome-ignore lint/correctness/useYield: a stream is refused, not empty
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('Streams do not work on both databases: read in pages instead')
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(this.#readers.map((reader) => reader.close()))
  }
}

type ReaderSettings = { timeoutMs?: number; onQuery?: OnQuery }

/** Called when a query has ended: it waited for its thread, and then ran. */
export type OnQuery = (
  sql: string,
  how: { waitedMs: number; ranMs: number; trace: Trace | undefined },
) => void

type Waiting = {
  sql: string
  trace: Trace | undefined
  since: number
  resolve: (rows: unknown[]) => void
  reject: (error: unknown) => void
}

class Reader {
  readonly #data: ReaderData
  readonly #onQuery: OnQuery
  readonly #waiting = new Map<number, Waiting>()
  #worker: Worker | undefined
  #lastId = 0
  #idle: (() => void) | undefined

  constructor(data: ReaderData, onQuery: OnQuery) {
    this.#data = data
    this.#onQuery = onQuery
  }

  get waiting(): number {
    return this.#waiting.size
  }

  run(sql: string, parameters: readonly unknown[]): Promise<unknown[]> {
    return new Promise((resolve, reject) => {
      this.#worker ??= this.#start()
      const worker = this.#worker
      const id = ++this.#lastId
      worker.postMessage({ id, sql, parameters })
      this.#waiting.set(id, { sql, trace: currentTrace(), since: performance.now(), resolve, reject })
      worker.ref()
    })
  }

  async close(): Promise<void> {
    if (this.#waiting.size > 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, closePatience)
        this.#idle = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    await this.#worker?.terminate()
  }

  #start(): Worker {
    const worker = new Worker(script, { workerData: this.#data })
    worker.unref()
    worker.on('message', (reply: ReaderReply) => this.#settle(reply))
    worker.on('error', (error) => this.#lost(worker, error))
    worker.on('exit', () => this.#lost(worker, new Error('The reader thread stopped')))
    return worker
  }

  #settle(reply: ReaderReply): void {
    const waiting = this.#waiting.get(reply.id)
    this.#waiting.delete(reply.id)
    if (waiting) {
      const { sql, trace, since } = waiting
      this.#onQuery(sql, { waitedMs: performance.now() - since - reply.ms, ranMs: reply.ms, trace })
    }
    if ('rows' in reply) waiting?.resolve(reply.rows)
    else waiting?.reject(Object.assign(new Error(reply.error.message), reply.error))
    if (this.#waiting.size === 0) this.#rest()
  }

  #lost(worker: Worker, error: unknown): void {
    if (this.#worker !== worker) return
    this.#worker = undefined
    for (const { reject } of this.#waiting.values()) reject(error)
    this.#waiting.clear()
    this.#rest()
  }

  #rest(): void {
    this.#worker?.unref()
    this.#idle?.()
  }
}
