import { hash } from 'node:crypto'
import {
  type Compilable,
  type CompiledQuery,
  DeleteResult,
  InsertResult,
  PostgresAdapter,
  type QueryExecutor,
  type QueryResult,
  UpdateResult,
} from 'kysely'
import type { Db } from '../db.ts'

type Value = string | number | bigint | Uint8Array | null

/** The values of a prepared query by name: `p.id` stands for what the caller passes as `id`. */
export type Params<P> = { readonly [K in keyof P]: P[K] }

/**
 * A query that is built and compiled once per database and then only run. Its shape must not depend on the values: no
 * lists, no `if`, no comparison with a value that may be null. Returns what `execute()` returns.
 */
export function prepared<P extends { [K in keyof P]: Value }, O>(
  build: (db: Db, p: Params<P>) => Compilable<O>,
): (db: Db, values: P) => Promise<O[]> {
  const plans: { sqlite?: Plan; postgres?: Plan } = {}
  return async (db, values) => {
    const executor = db.getExecutor()
    const dialect = isPostgres(executor) ? 'postgres' : 'sqlite'
    plans[dialect] ??= planned(build(db, placeholders as Params<P>).compile(), dialect)
    const plan = plans[dialect]
    const parameters = filled(plan, values as Record<string, unknown>)
    const result = isImmediate(executor)
      ? executor.executeNow<O>({ sql: plan.query.sql, parameters })
      : await executor.executeQuery<O>({ ...plan.query, parameters })
    return plan.outcome(result) as O[]
  }
}

/** The executor of a write on SQLite, which has the result at once. */
type Immediate = { executeNow<R>(query: Pick<CompiledQuery, 'sql' | 'parameters'>): QueryResult<R> }

const isImmediate = (executor: object): executor is Immediate => 'executeNow' in executor

export const isPostgres = ({ adapter }: QueryExecutor): boolean => adapter instanceof PostgresAdapter

/** The columns of a row as a list: the compiler refuses one that lacks a column, which would be stored as null. */
export const keysOf = <Row>(columns: Readonly<Record<keyof Row, true>>) =>
  Object.keys(columns) as (keyof Row)[]

/** Placeholders for a whole row, for an insert. */
export function rowOf<Row>(p: Params<Row>, columns: readonly (keyof Row)[]): Row {
  return Object.fromEntries(columns.map((column) => [column, p[column]])) as Row
}

class Placeholder {
  readonly name: string

  constructor(name: string) {
    this.name = name
  }
}

const placeholders = new Proxy({}, { get: (_, name) => new Placeholder(String(name)) })

type Plan = {
  query: CompiledQuery
  slots: { index: number; name: string }[]
  outcome: (result: QueryResult<unknown>) => unknown[]
}

/**
 * Names of the statements whose plan Postgres keeps: most cost more to plan than to run. A name is a hash of the
 * text, so processes that share a session never use one name for two statements.
 */
const statements = new Map<string, string>()

export const statementName = (text: string): string | undefined => statements.get(text)

function planned(query: CompiledQuery, dialect: 'sqlite' | 'postgres'): Plan {
  if (dialect === 'postgres' && !statements.has(query.sql)) {
    statements.set(query.sql, `svc_${hash('sha256', query.sql, 'hex').slice(0, 32)}`)
  }
  const slots = query.parameters.flatMap((value, index) =>
    value instanceof Placeholder ? [{ index, name: value.name }] : [],
  )
  return { query, slots, outcome: outcomeOf(query) }
}

function filled(plan: Plan, values: Record<string, unknown>): unknown[] {
  const parameters = plan.query.parameters.slice()
  for (const { index, name } of plan.slots) {
    const value = values[name]
    if (value === undefined) throw new Error(`A prepared query was run without a value for ${name}`)
    parameters[index] = value
  }
  return parameters
}

/** Kysely's own builders turn a statement without `returning` into one result object; so does this. */
function outcomeOf({ query }: CompiledQuery): Plan['outcome'] {
  if (!('returning' in query && query.returning)) {
    if (query.kind === 'InsertQueryNode') {
      return (it) => [new InsertResult(it.insertId, it.numAffectedRows ?? 0n)]
    }
    if (query.kind === 'UpdateQueryNode') {
      return (it) => [new UpdateResult(it.numAffectedRows ?? 0n, it.numChangedRows)]
    }
    if (query.kind === 'DeleteQueryNode') {
      return (it) => [new DeleteResult(it.numAffectedRows ?? 0n)]
    }
  }
  return (it) => it.rows
}
