import {
  type CompiledQuery,
  type DatabaseConnection,
  DefaultQueryExecutor,
  type Dialect,
  type Driver,
  Kysely,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
} from 'kysely'
import type { Leftovers } from './before-commit.ts'
import { SqliteCompiler } from './compilers.ts'
import type { Db } from './db.ts'

/** Queries over one connection, without Kysely's mutex, init and release around each of them. */
export function kyselyOver(connection: DatabaseConnection): Db {
  return kyselyWith(new DirectExecutor(connection))
}

/** The queries of one write: `end` makes a query that was left running fail, not join the next write. */
export function kyselyOnce(
  connection: DatabaseConnection,
  leftovers?: Leftovers,
): { tx: Db; end: () => void } {
  const executor = new DirectExecutor(connection, leftovers)
  return { tx: kyselyWith(executor), end: () => executor.end() }
}

class Adapter extends SqliteAdapter {
  override get supportsMultipleConnections(): boolean {
    return true
  }
}

const adapter = new Adapter()
const compiler = new SqliteCompiler()

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

function kyselyWith(executor: DirectExecutor): Db {
  return new Kysely({ config: { dialect }, dialect, driver, executor } as never)
}

class DirectExecutor extends DefaultQueryExecutor {
  /** Where what is read or written is part of a write. */
  readonly leftovers: Leftovers | undefined
  readonly #connection: DatabaseConnection
  #ended = false

  constructor(connection: DatabaseConnection, leftovers?: Leftovers) {
    super(compiler, adapter, { provideConnection: (consumer) => consumer(connection) })
    this.#connection = connection
    this.leftovers = leftovers
  }

  end(): void {
    this.#ended = true
  }

  override executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    if (this.#ended) return Promise.reject(new Error('This write has ended: a query was not awaited'))
    return this.#connection.executeQuery(query)
  }
}
