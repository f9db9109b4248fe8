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
  sql,
} from 'kysely'
import pg from 'pg'
import { SetupError } from '../../core/errors.ts'
import { CommitListeners } from '../commit-listeners.ts'
import { isTransient } from '../database-errors.ts'
import type { Db, PostgresSettings, ReadQuerySettings, Storage, WriteOptions } from '../db.ts'
import { FairSemaphore } from '../fair-queue.ts'
import { NestedWriteGuard } from '../nested-writes.ts'
import type { PoolName, PoolUsage, StorageObserver } from '../observer.ts'
import { PostgresCompiler } from '../query/compilers.ts'
import { dialectTraits } from '../traits.ts'
import { isStalePlan, PostgresConnection } from './connection.ts'
import { checkPostgresIntegrity } from './integrity-check.ts'
import { postgresNotifications } from './notifications.ts'
import { assertNoTransactionPooler, assertSameDatabase } from './pooler-check.ts'
import { HealthProbe } from './probe.ts'
import { getTypeParser } from './type-parsers.ts'

/**
 * Connections are cut when silent for this much longer than a statement may take, or for twice as long if that is
 * less.
 */
const graceMs = 5000
/** Time limit for running writes when the storage closes. */
const closeMs = 1000
const watchMs = 250
/** Time limit for a caller's turn, and then for its connection. */
const connectMs = 10_000

/**
 * With `poolerUrl` all statements go through a pooler that may give each transaction another session: each is a transaction with
 * settings of its own, and none has a name. What needs a session (LISTEN, its lock) goes to the server itself.
 */
export async function openPostgres(
  { databaseUrl, poolerUrl }: { databaseUrl: string; poolerUrl: string | undefined },
  settings: PostgresSettings,
  { timeoutMs, atOnce }: ReadQuerySettings,
  observer: StorageObserver,
): Promise<Storage> {
  const { statementMs } = settings
  const connections = new Set<PostgresConnection>()
  const isPooled = poolerUrl !== undefined
  const url = poolerUrl ?? databaseUrl
  const pool = newPool(FairPool, { url, isPooled }, settings, connections, observerOf('main', observer))
  await firstConnection(pool, { databaseUrl, poolerUrl }, settings)
  const readQueryConnections = new Set<PostgresConnection>()
  const watch = setInterval(() => {
    cutSilent(connections, statementMs)
    cutSilent(readQueryConnections, timeoutMs)
  }, watchMs).unref()
  const probe = new HealthProbe(url)
  const beginOf = (text: string, ms: number) =>
    isPooled ? `${text}; ${sessionSettings(ms, 'set local')}` : text
  const db: Db = new Kysely({ dialect: new PortableDialect({ pool }, beginOf(begin, statementMs)) })
  // A separate pool, so a caller with many queries does not delay other reads; how many a caller may run is limited
  // before. A connection closes when it is idle, which frees the patterns that it has cached.
  const readQueryPool = newPool(
    RetryingPool,
    { url, isPooled },
    { ...settings, poolSize: atOnce, statementMs: timeoutMs },
    readQueryConnections,
    observerOf('questions', observer),
  )
  const beginReadQuery = beginOf(begin, timeoutMs)
  const readQueries: Db = new Kysely({
    dialect: new PortableDialect({ pool: readQueryPool }, beginReadQuery),
  })
  const beginLoose = beginOf(beginUnsynced, statementMs)
  const unsynced: Db = new Kysely({ dialect: new PortableDialect({ pool }, beginLoose) })
  const beginFixed = beginOf(beginSnapshot, statementMs)
  const snapshot: Db = new Kysely({ dialect: new PortableDialect({ pool }, beginFixed) })
  const commits = new CommitListeners()
  const nesting = new NestedWriteGuard()
  const running = new Set<Promise<unknown>>()
  let closing: Promise<void> | undefined

  async function write<T>(work: (tx: Db) => Promise<T>, options?: WriteOptions): Promise<T> {
    nesting.check()
    if (closing) throw new Error('The storage is closed')
    const beginning = options?.snapshot ? snapshot : options?.unsynced ? unsynced : db
    const result = transaction(beginning, async (tx) => {
      const write = { isOver: false }
      try {
        if (options?.lockMs !== undefined) await setLockTimeout(tx, options.lockMs)
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
    // Repeated: the next waiting caller may get a connection that was opened since the last cut.
    const cutting = setInterval(() => {
      if (performance.now() < lateAt) return
      for (const connection of [...connections, ...readQueryConnections]) connection.cut('the service ends')
    }, 50)
    const late = sleep(closeMs, undefined, { ref: false })
    await Promise.all([Promise.race([Promise.allSettled(running), late]), probe.close()])
    await db.destroy()
    if (!pool.ended) await pool.end()
    if (!readQueryPool.ended) await readQueryPool.end()
    clearInterval(cutting)
    clearInterval(watch)
  }

  return {
    dialect: 'postgres',
    traits: dialectTraits.postgres,
    read: db,
    heavy: db,
    readQueries,
    write,
    onCommit: (listener) => commits.listen(listener),
    version: () => undefined,
    signals: postgresNotifications(databaseUrl, db),
    check: () => probe.check(),
    checkIntegrity: () => checkPostgresIntegrity(db),
    usage: () => ({ main: pool.usage(), questions: readQueryPool.usage() }),
    giveSpaceBack: async () => {},
    sizes: async () => {
      const found = await sql<{ data: number }>`select pg_database_size(current_database()) as data`.execute(
        db,
      )
      return found.rows[0]!
    },
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

/**
 * Cuts connections that have been silent for too long: the database itself ends a slow statement earlier, so no
 * answer will come, or none can be received.
 */
function cutSilent(connections: ReadonlySet<PostgresConnection>, statementMs: number): void {
  if (statementMs === 0) return
  const now = performance.now()
  const limitMs = statementMs + Math.min(graceMs, statementMs)
  for (const connection of connections) {
    const silentMs = connection.silentMs(now)
    if (silentMs > limitMs) connection.cut(`no answer for ${Math.round(silentMs / 1000)} s`)
  }
}

const begin = 'begin isolation level read committed'
const beginSnapshot = 'begin isolation level repeatable read'
/** Its transactions return before they are on disk; they reach it a moment later, in order. */
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

type PoolObserver = { waited(milliseconds: number): void } & Pick<StorageObserver, 'ran'>

const observerOf = (pool: PoolName, observer: StorageObserver): PoolObserver => ({
  waited: (milliseconds) => observer.waited(pool, milliseconds),
  ran: (sql, milliseconds, trace) => observer.ran(sql, milliseconds, trace),
})

function newPool(
  Pool: typeof RetryingPool,
  { url, isPooled }: { url: string; isPooled: boolean },
  { poolSize, statementMs }: PostgresSettings,
  connections: Set<PostgresConnection>,
  observer: PoolObserver,
): RetryingPool {
  class Registered extends PostgresConnection {
    constructor(config?: string | pg.ClientConfig) {
      super(config)
      this.observer = observer
      if (isPooled) this.beginsEach = `begin; ${sessionSettings(statementMs, 'set local')}`
      connections.add(this)
      // A lost connection fails the query that uses it and is replaced; the event itself must not end the process.
      this.on('error', ignore)
      this.once('end', () => connections.delete(this))
    }
  }
  const pool = new Pool({
    ...connectionConfig(url),
    max: poolSize,
    application_name: 'svc',
    types: { getTypeParser },
    Client: Registered,
    ...(!isPooled && {
      onConnect: (client: pg.ClientBase) => client.query(sessionSettings(statementMs, 'set')),
    }),
  })
  pool.on('error', ignore)
  pool.observer = observer
  return pool
}

const connectionConfig = (databaseUrl: string): pg.ClientConfig => ({
  connectionString: databaseUrl,
  connectionTimeoutMillis: connectMs,
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
})

/**
 * The default page cost assumes a spinning disk, where scanning a small table beats an index; here the data is in
 * memory. A process stopped in the middle of a transaction holds its locks no longer than a statement may take; others
 * wait less for a lock, so that a batch with a locked row is soon taken apart. Not connection parameters: poolers
 * support few of those.
 */
const sessionSettings = (statementMs: number, set: 'set' | 'set local'): string =>
  [
    'random_page_cost = 1.1',
    `statement_timeout = ${statementMs}`,
    `lock_timeout = ${lockMs(statementMs)}`,
    `idle_in_transaction_session_timeout = ${statementMs}`,
  ]
    .map((one) => `${set} ${one}`)
    .join('; ')

/** For the rest of the transaction. */
const setLockTimeout = (tx: Db, ms: number) => sql`set local lock_timeout = ${sql.lit(ms)}`.execute(tx)

/** Longer than Postgres takes to notice a deadlock (`deadlock_timeout`), which is tried again. */
const minLockMs = 1500

/** How long a statement waits for a lock; 0: without end, as a migration does. */
const lockMs = (statementMs: number): number =>
  statementMs === 0 ? 0 : Math.min(5000, Math.max(minLockMs, statementMs / 2))

/** Refused, starting, stopping, or out of connections: a retry may succeed soon. */
const retryableCodes = new Set(['ECONNREFUSED', '57P03', '53300'])
const isRefused = (error: unknown): boolean => retryableCodes.has((error as { code?: string }).code ?? '')

/** How long to retry a refused connection, so that a restart of the database causes a delay and no failure. */
const retryMs = 2000

/** Retries a refused connection for a moment. */
class RetryingPool extends pg.Pool {
  observer: Pick<PoolObserver, 'waited'> | undefined

  override connect(): Promise<pg.PoolClient>
  override connect(callback: Parameters<pg.Pool['connect']>[0]): void
  override connect(callback?: Parameters<pg.Pool['connect']>[0]): Promise<pg.PoolClient> | undefined {
    if (callback) {
      super.connect(callback)
      return undefined
    }
    return this.#timed()
  }

  usage(): PoolUsage {
    const { options, totalCount, idleCount } = this
    return { limit: options.max, inUse: totalCount - idleCount, waiting: this.waiting }
  }

  protected get waiting(): number {
    return this.waitingCount
  }

  async #timed(): Promise<pg.PoolClient> {
    const since = performance.now()
    try {
      return await this.acquire()
    } finally {
      this.observer?.waited(performance.now() - since)
    }
  }

  protected acquire(): Promise<pg.PoolClient> {
    return retryRefused(() => super.connect(), retryMs)
  }
}

/** Callers take turns: see FairSemaphore. */
class FairPool extends RetryingPool {
  readonly #slots = new FairSemaphore(this.options.max, connectMs)
  readonly #releases = new WeakMap<object, () => void>()

  constructor(settings: pg.PoolConfig) {
    super(settings)
    this.on('release', (_, client) => this.#releases.get(client)?.())
  }

  protected override get waiting(): number {
    return this.#slots.waiting + this.waitingCount
  }

  protected override async acquire(): Promise<pg.PoolClient> {
    const release = await this.#slots.take()
    try {
      const client = await super.acquire()
      this.#releases.set(client, release)
      return client
    } catch (error) {
      release()
      throw error
    }
  }
}

async function retryRefused<T>(
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
  { databaseUrl, poolerUrl }: { databaseUrl: string; poolerUrl: string | undefined },
  { waitMs, onRefused }: PostgresSettings,
): Promise<void> {
  try {
    await retryRefused(
      () => checkSessions(pool, databaseUrl, poolerUrl),
      waitMs,
      (error) => onRefused?.(reason(error)),
    )
  } catch (error) {
    await pool.end()
    if (error instanceof SetupError) throw error
    const places = [...new Set([poolerUrl ?? databaseUrl, databaseUrl].map(place))].join(', or ')
    throw new SetupError(`Cannot use ${places}: ${reason(error)}`, { cause: error })
  }
}

async function checkSessions(
  pool: pg.Pool,
  databaseUrl: string,
  poolerUrl: string | undefined,
): Promise<void> {
  const one = await pool.connect()
  // Outside the pool, which may have room for only one connection.
  const others = [0, ...(poolerUrl === undefined ? [] : [1])].map(() => {
    const other = new pg.Client(connectionConfig(databaseUrl))
    other.on('error', ignore)
    return other
  })
  try {
    await Promise.all(others.map((other) => other.connect()))
    const [first, second = one] = others
    const name = poolerUrl === undefined ? 'DATABASE_URL' : 'DATABASE_DIRECT_URL'
    await assertNoTransactionPooler(second, first!, name)
    if (poolerUrl !== undefined) await assertSameDatabase(one, first!)
  } finally {
    one.release()
    await Promise.allSettled(others.map((other) => other.end()))
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

const attempts = 5

async function transaction<T>(db: Db, work: (tx: Db) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction().execute(work)
    } catch (error) {
      if (attempt === attempts || !(isStalePlan(error) || isTransient(error))) throw error
      await sleep(Math.random() * 10 * 2 ** attempt)
    }
  }
}
