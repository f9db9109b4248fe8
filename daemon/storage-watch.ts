import type { Logger } from 'pino'
import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { PoolName, PoolUsage, StorageObserver } from '../src/storage/observer.ts'
import type { Storage } from '../src/storage/open.ts'
import type { Trace } from '../src/storage/trace.ts'
import type { StoredMetrics } from './metrics.ts'

/** Milliseconds from which a statement counts as slow. */
const slowMs = 200
/** How long sizes are served before they are read again. */
const keepMs = 15_000

/** What callers wait for at the database, how long its statements take, and how large it is. */
export class StorageWatch implements StorageObserver {
  readonly #log: Pick<Logger, 'debug'>
  readonly #metrics: Registry
  readonly #waits: Histogram<'pool'>
  readonly #slow: Counter<'operation' | 'table'>

  constructor(log: Pick<Logger, 'debug'>, metrics: Registry) {
    this.#log = log
    this.#metrics = metrics
    this.#waits = new Histogram({
      name: 'svc_database_wait_seconds',
      help: 'How long callers waited for a connection of Postgres, or for a thread or their turn to write of SQLite.',
      labelNames: ['pool'],
      buckets: [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10],
      registers: [metrics],
    })
    this.#slow = new Counter({
      name: 'svc_database_slow_statements_total',
      help: `Statements that took longer than ${slowMs} ms, by what they do and their first table.`,
      labelNames: ['operation', 'table'],
      registers: [metrics],
    })
  }

  waited(pool: PoolName, milliseconds: number): void {
    this.#waits.observe({ pool }, milliseconds / 1000)
  }

  ran(sql: string, milliseconds: number, trace?: Trace): void {
    trace?.ran(sql, milliseconds)
    if (milliseconds < slowMs) return
    this.#slow.inc(statementOf(sql))
    this.#log.debug({ sql: sql.slice(0, 2000), ms: Math.round(milliseconds) }, 'a statement was slow')
  }

  /** Measures the pools and sizes of a storage that this observes. */
  measure(storage: Pick<Storage, 'usage' | 'sizes'>): StoredMetrics {
    this.#addPool('svc_database_pool_limit', 'The most connections or threads of a pool.', storage, 'limit')
    this.#addPool('svc_database_pool_in_use', 'Connections or threads of a pool in use.', storage, 'inUse')
    this.#addPool('svc_database_pool_waiting', 'Callers that wait for a pool.', storage, 'waiting')
    const registry = new Registry()
    const bytes = new Gauge({
      name: 'svc_database_bytes',
      help: 'Bytes of the database: of its data, and of the write-ahead log beside a SQLite file.',
      labelNames: ['part'],
      registers: [registry],
    })
    const refresh = async () => {
      for (const [part, size] of Object.entries(await storage.sizes())) bytes.set({ part }, size)
    }
    return { registry, refresh, keepMs }
  }

  #addPool(name: string, help: string, { usage }: Pick<Storage, 'usage'>, what: keyof PoolUsage): void {
    const gauge: Gauge<'pool'> = new Gauge({
      name,
      help,
      labelNames: ['pool'],
      registers: [this.#metrics],
      collect: () => {
        for (const [pool, one] of Object.entries(usage())) gauge.set({ pool }, one[what])
      },
    })
  }
}

/** Statements are written in the code alone, so there are as many names as it has operations and tables. */
export function statementOf(sql: string): { operation: string; table: string } {
  const [, operation = 'other'] = /^\s*([a-z]+)/i.exec(sql) ?? []
  const [, table = ''] = /\b(?:from|into|update|join) "(\w+)"/i.exec(sql) ?? []
  return { operation: operation.toLowerCase(), table }
}
