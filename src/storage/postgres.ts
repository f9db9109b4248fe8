import { setTimeout as sleep } from 'node:timers/promises'
import {
  CompiledQuery,
  type DatabaseConnection,
  type Driver,
  Kysely,
  PostgresDialect,
  type PostgresDialectConfig,
  PostgresDriver,
  type QueryCompiler,
} from 'kysely'
import pg from 'pg'
import { SetupError } from '../core/errors.ts'
import { Commits } from './commits.ts'
import { PostgresCompiler } from './compilers.ts'
import type { Db, Storage } from './db.ts'
import { Nesting } from './nesting.ts'
import { refuseSharedSessions } from './pooler.ts'
import { Connection, isStalePlan } from './postgres-connection.ts'
import { getTypeParser } from './postgres-types.ts'
import { signalsOn } from './signals.ts'

export async function openPostgres(databaseUrl: string, poolSize: number): Promise<Storage> {
  const pool = newPool(databaseUrl, poolSize)
  await firstConnection(pool, databaseUrl)
  const db: Db = new Kysely({ dialect: new PortableDialect({ pool }, begin) })
  const unsynced: Db = new Kysely({ dialect: new PortableDialect({ pool }, beginUnsynced) })
  const commits = new Commits()
  const nesting = new Nesting()
  const running = new Set<Promise<unknown>>()
  let closing: Promise<void> | undefined

  async function write<T>(work: (tx: Db) => Promise<T>, options?: { unsynced?: boolean }): Promise<T> {
    nesting.check()
    if (closing) throw new Error('The storage is closed')
    const result = transaction(options?.unsynced ? unsynced : db, async (tx) => {
      const write = { isOver: false }
      try {
        return await nesting.run(write, () => work(tx))
      } finally {
        write.isOver = true
      }
    })
    running.add(result)
    try {
      const value = await result
      if (!options?.unsynced) commits.announce()
      return value
    } finally {
      running.delete(result)
    }
  }

  async function close(): Promise<void> {
    await Promise.allSettled(running)
    await db.destroy()
    if (!pool.ended) await pool.end()
  }

  return {
    dialect: 'postgres',
    read: db,
    heavy: db,
    write,
    onCommit: (listener) => commits.listen(listener),
    version: () => undefined,
    signals: signalsOn(databaseUrl, db),
    check: async () => {
      await pool.query({ text: 'select 1', query_timeout: 5000 } as pg.QueryConfig)
    },
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

const begin = 'begin isolation level read committed'
/** Its transactions end before they are on disk, which they reach in their order a moment later. */
const beginUnsynced = `${begin}; set local synchronous_commit = off`

class PortableDialect extends PostgresDialect {
  readonly #config: PostgresDialectConfig
  readonly #begin: string

  constructor(config: PostgresDialectConfig, begin: string) {
    super(config)
    this.#config = config
    this.#begin = begin
  }

  override createDriver(): Driver {
    return new BeginningDriver(this.#config, this.#begin)
  }

  override createQueryCompiler(): QueryCompiler {
    return new PostgresCompiler()
  }
}

class BeginningDriver extends PostgresDriver {
  readonly #begin: string

  constructor(config: PostgresDialectConfig, begin: string) {
    super(config)
    this.#begin = begin
  }

  override async beginTransaction(connection: DatabaseConnection): Promise<void> {
    await connection.executeQuery(CompiledQuery.raw(this.#begin))
  }
}

function newPool(databaseUrl: string, poolSize: number): pg.Pool {
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    max: poolSize,
    application_name: 'svc',
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    types: { getTypeParser },
    Client: Connection,
    onConnect,
  })
  // A lost connection fails the query that uses it and is replaced; the event itself must not end the process.
  pool.on('error', ignore)
  pool.on('connect', (client) => client.on('error', ignore))
  return pool
}

/** Its default is that of a turning disk, where to read a small table whole beats an index; what is read here is in memory. */
const onConnect = (client: pg.ClientBase) => client.query('set random_page_cost = 1.1')

function ignore(): void {}

async function firstConnection(pool: pg.Pool, databaseUrl: string): Promise<void> {
  try {
    await checkSessions(pool)
  } catch (error) {
    await pool.end()
    if (error instanceof SetupError) throw error
    throw new SetupError(`Cannot use ${place(databaseUrl)}: ${reason(error)}`, { cause: error })
  }
}

async function checkSessions(pool: pg.Pool): Promise<void> {
  const one = await pool.connect()
  try {
    // A connection outside of the pool, which may have room for one alone.
    const other = new pg.Client(pool.options)
    other.on('error', ignore)
    await other.connect()
    await refuseSharedSessions(one, other).finally(() => other.end())
  } finally {
    one.release()
  }
}

/** Host, port and database of a URL; never its password. */
function place(databaseUrl: string): string {
  const { host, port, database } = new pg.Client(databaseUrl)
  return `PostgreSQL at ${host}:${port}, database ${database}`
}

function reason(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return reason(error.errors[0])
  return error instanceof Error && error.message ? error.message : String(error)
}

/** Serialization failure and deadlock: the transaction did nothing, and another try is likely to succeed. */
const transient = new Set(['40001', '40P01'])
const attempts = 5

async function transaction<T>(db: Db, work: (tx: Db) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction().execute(work)
    } catch (error) {
      const isTransient = isStalePlan(error) || transient.has((error as { code?: string }).code ?? '')
      if (attempt === attempts || !isTransient) throw error
      await sleep(Math.random() * 10 * 2 ** attempt)
    }
  }
}
