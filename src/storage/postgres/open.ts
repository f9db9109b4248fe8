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
import { SetupError } from '../../core/errors.ts'
import { CommitListeners } from '../commit-listeners.ts'
import type { Db, PostgresSettings, ReadQuerySettings, Storage } from '../db.ts'
import { NestedWriteGuard } from '../nested-writes.ts'
import { PostgresCompiler } from '../query/compilers.ts'
import { isStalePlan, PostgresConnection } from './connection.ts'
import { checkPostgresIntegrity } from './integrity-check.ts'
import { postgresNotifications } from './notifications.ts'
import { assertNoTransactionPooler } from './pooler-check.ts'
import { HealthProbe } from './probe.ts'
import { getTypeParser } from './type-parsers.ts'

/** Connections end after a failure to answer this much longer than a statement may take, or twice that. */
const graceMs = 5000
/** How long what is under way may take when the storage is closed. */
const closeMs = 1000
const watchMs = 250

export async function openPostgres(
  databaseUrl: string,
  settings: PostgresSettings,
  { timeoutMs, atOnce }: ReadQuerySettings,
): Promise<Storage> {
  const { statementMs } = settings
  const connections = new Set<PostgresConnection>()
  const pool = newPool(databaseUrl, settings, connections)
  await firstConnection(pool, databaseUrl, settings)
  const asked = new Set<PostgresConnection>()
  const watch = setInterval(() => {
    cutSilent(connections, statementMs)
    cutSilent(asked, timeoutMs)
  }, watchMs).unref()
  const probe = new HealthProbe(databaseUrl)
  const db: Db = new Kysely({ dialect: new PortableDialect({ pool }, begin) })
  // Of their own, so that whoever asks a lot keeps nobody else waiting. What they keep of patterns goes with them when idle.
  const asking = newPool(databaseUrl, { ...settings, poolSize: atOnce, statementMs: timeoutMs }, asked)
  const questions: Db = new Kysely({ dialect: new PortableDialect({ pool: asking }, begin) })
  const unsynced: Db = new Kysely({ dialect: new PortableDialect({ pool }, beginUnsynced) })
  const commits = new CommitListeners()
  const nesting = new NestedWriteGuard()
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
    const lateAt = performance.now() + closeMs
    // Again and again: in place of one that is cut, the next who waits may get one that is begun meanwhile.
    const cutting = setInterval(() => {
      if (performance.now() < lateAt) return
      for (const connection of [...connections, ...asked]) connection.cut('the service ends')
    }, 50)
    const late = sleep(closeMs, undefined, { ref: false })
    await Promise.all([Promise.race([Promise.allSettled(running), late]), probe.close()])
    await db.destroy()
    if (!pool.ended) await pool.end()
    if (!asking.ended) await asking.end()
    clearInterval(cutting)
    clearInterval(watch)
  }

  return {
    dialect: 'postgres',
    read: db,
    heavy: db,
    questions,
    write,
    onCommit: (listener) => commits.listen(listener),
    version: () => undefined,
    signals: postgresNotifications(databaseUrl, db),
    check: () => probe.check(),
    checkIntegrity: () => checkPostgresIntegrity(db),
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

/**
 * Whoever has not answered by now does not answer any more, or is not heard: a statement that takes too long is ended by
 * the database itself before.
 */
function cutSilent(connections: ReadonlySet<PostgresConnection>, statementMs: number): void {
  if (statementMs === 0) return
  const now = performance.now()
  const mostMs = statementMs + Math.min(graceMs, statementMs)
  for (const connection of connections) {
    const silentMs = connection.silentMs(now)
    if (silentMs > mostMs) connection.cut(`no answer for ${Math.round(silentMs / 1000)} s`)
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

function newPool(
  databaseUrl: string,
  { poolSize, statementMs }: PostgresSettings,
  connections: Set<PostgresConnection>,
): pg.Pool {
  class Registered extends PostgresConnection {
    constructor(config?: string | pg.ClientConfig) {
      super(config)
      connections.add(this)
      // A lost connection fails the query that uses it and is replaced; the event itself must not end the process.
      this.on('error', ignore)
      this.once('end', () => connections.delete(this))
    }
  }
  const pool = new PatientPool({
    ...connectionConfig(databaseUrl),
    max: poolSize,
    application_name: 'svc',
    types: { getTypeParser },
    Client: Registered,
    onConnect: (client: pg.ClientBase) => client.query(sessionSettings(statementMs)),
  })
  pool.on('error', ignore)
  return pool
}

const connectionConfig = (databaseUrl: string): pg.ClientConfig => ({
  connectionString: databaseUrl,
  connectionTimeoutMillis: 10_000,
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
})

/**
 * The default cost of a page is that of a turning disk, where to read a small table whole beats an index; what is read
 * here is in memory. A process that was stopped in the middle of a transaction holds its locks no longer than a
 * statement may take. Not as parameters of the connection: poolers know few of those.
 */
const sessionSettings = (statementMs: number): string =>
  `set random_page_cost = 1.1; set statement_timeout = ${statementMs}; set idle_in_transaction_session_timeout = ${statementMs}`

/** Refused, starting, stopping, or with all connections taken: there may be one in a moment. */
const mayTakeOne = new Set(['ECONNREFUSED', '57P03', '53300'])
const isRefused = (error: unknown): boolean => mayTakeOne.has((error as { code?: string }).code ?? '')

/** How long a connection that is refused is tried again, so that a restart of the database is a wait and no failure. */
const patienceMs = 2000

/** Tries a connection that was refused again, for a moment. */
class PatientPool extends pg.Pool {
  override connect(): Promise<pg.PoolClient>
  override connect(callback: Parameters<pg.Pool['connect']>[0]): void
  override connect(callback?: Parameters<pg.Pool['connect']>[0]): Promise<pg.PoolClient> | undefined {
    if (callback) {
      super.connect(callback)
      return undefined
    }
    return again(() => super.connect(), patienceMs)
  }
}

async function again<T>(
  work: () => Promise<T>,
  forMs: number,
  onRefused?: (error: unknown) => void,
): Promise<T> {
  for (const end = performance.now() + forMs; ; ) {
    try {
      return await work()
    } catch (error) {
      if (!isRefused(error) || performance.now() > end) throw error
      onRefused?.(error)
      await sleep(forMs / 20 + Math.random() * 100)
    }
  }
}

function ignore(): void {}

async function firstConnection(
  pool: pg.Pool,
  databaseUrl: string,
  { waitMs, onRefused }: PostgresSettings,
): Promise<void> {
  try {
    await again(
      () => checkSessions(pool, databaseUrl),
      waitMs,
      (error) => onRefused?.(reason(error)),
    )
  } catch (error) {
    await pool.end()
    if (error instanceof SetupError) throw error
    throw new SetupError(`Cannot use ${place(databaseUrl)}: ${reason(error)}`, { cause: error })
  }
}

async function checkSessions(pool: pg.Pool, databaseUrl: string): Promise<void> {
  const one = await pool.connect()
  try {
    // A connection outside of the pool, which may have room for one alone.
    const other = new pg.Client(connectionConfig(databaseUrl))
    other.on('error', ignore)
    await other.connect()
    await assertNoTransactionPooler(one, other).finally(() => other.end())
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
