import {
  type CompiledQuery,
  type DatabaseConnection,
  DefaultQueryExecutor,
  type Dialect,
  type Driver,
  Kysely,
  type KyselyProps,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
} from 'kysely'
import { type BeforeCommitHooks, SharedTransaction } from '../before-commit.ts'
import type { Db } from '../db.ts'
import { InterruptibleCompiler, SqliteCompiler } from '../query/compilers.ts'
import type { SqliteConnection } from './connection.ts'

/** Queries over one connection, without Kysely's mutex, init and release around each of them. */
export function kyselyOver(connection: DatabaseConnection): Db {
  return kyselyWith(new DirectExecutor(connection))
}

/** The same for queries that are ended when they take too long. */
export function interruptibleKyselyOver(connection: DatabaseConnection): Db {
  return kyselyWith(new DirectExecutor(connection, interruptible))
}

class Adapter extends SqliteAdapter {
  override get supportsMultipleConnections(): boolean {
    return true
  }
}

const adapter = new Adapter()
const compiler = new SqliteCompiler()
const interruptible = new InterruptibleCompiler()

const dialect: Dialect = {
  createAdapter: () => adapter,
  createQueryCompiler: () => compiler,
  createIntrospector: (db) => new SqliteIntrospector(db),
  createDriver: () => driver,
}

async function refuse(): Promise<never> {
  throw new Error('Transactions are opened by storage.write() only')
}

async function nothing(): Promise<void> {}

const driver: Driver = {
  init: nothing,
  acquireConnection: refuse,
  beginTransaction: refuse,
  commitTransaction: refuse,
  rollbackTransaction: refuse,
  releaseConnection: nothing,
  destroy: nothing,
}

const kyselyWith = (executor: DirectExecutor): Db => new Kysely(propsWith(executor))

const propsWith = (executor: DirectExecutor): KyselyProps => ({
  config: { dialect },
  dialect,
  driver,
  executor,
})

class DirectExecutor<C extends DatabaseConnection = DatabaseConnection> extends DefaultQueryExecutor {
  protected readonly connection: C

  constructor(connection: C, by: SqliteCompiler = compiler) {
    super(by, adapter, { provideConnection: (consumer) => consumer(connection) })
    this.connection = connection
  }

  override executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    return this.connection.executeQuery(query)
  }
}

/**
 * The queries of one write. After it is over, a query that was left running fails: it does not join the next write.
 */
export class WriteExecutor extends DirectExecutor<SqliteConnection> {
  readonly tx: SharedTransaction
  isOver = false
  /** The error at which SQLite rolled back the whole transaction by itself. */
  failure: Error | undefined

  constructor(connection: SqliteConnection, hooks?: BeforeCommitHooks) {
    super(connection)
    this.tx = new SharedTransaction(propsWith(this), hooks)
  }

  end(): void {
    this.isOver = true
    this.tx.end()
  }

  override async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    return this.executeNow(query)
  }

  /** Synchronous, which saves its callers two promises. */
  executeNow<R>({ sql, parameters }: Pick<CompiledQuery, 'sql' | 'parameters'>): QueryResult<R> {
    if (this.failure) throw this.failure
    if (this.isOver) throw new Error('This write has ended: a query was not awaited')
    try {
      return this.connection.run(sql, parameters) as QueryResult<R>
    } catch (error) {
      // A full disk or an I/O error makes SQLite roll back the whole transaction by itself: what a caller that
      // catches the error writes next would be committed outside of it.
      if (!this.connection.database.inTransaction) this.failure = error as Error
      throw error
    }
  }
}
