import {
  AndNode,
  ExpressionWrapper,
  type OperationNode,
  ParensNode,
  PostgresQueryCompiler,
  type RawBuilder,
  type RawNode,
  type SelectQueryNode,
  type SqlBool,
  SqliteQueryCompiler,
  sql,
  WhereNode,
} from 'kysely'

const postgresVariant = Symbol('postgres variant')

type DialectNode = RawNode & { [postgresVariant]?: RawNode }

/** One expression with a variant for each database, chosen when the query is compiled. */
export function byDialect<T>(variants: {
  sqlite: RawBuilder<T>
  postgres: RawBuilder<T>
}): ExpressionWrapper<never, never, T> {
  const node = {
    ...variants.sqlite.toOperationNode(),
    [postgresVariant]: variants.postgres.toOperationNode(),
  }
  return new ExpressionWrapper(node as unknown as OperationNode)
}

export class PostgresCompiler extends PostgresQueryCompiler {
  protected override visitRaw(node: DialectNode): void {
    super.visitRaw(node[postgresVariant] ?? node)
  }
}

const locks = new Set(['ForUpdate', 'ForNoKeyUpdate', 'ForShare', 'ForKeyShare', 'NoWait', 'SkipLocked'])

export class SqliteCompiler extends SqliteQueryCompiler {
  /** Drops row locks: a write already has the whole file to itself. */
  protected override visitSelectQuery(node: SelectQueryNode): void {
    const endModifiers = node.endModifiers?.filter((it) => !it.modifier || !locks.has(it.modifier))
    super.visitSelectQuery(endModifiers ? { ...node, endModifiers } : node)
  }

  /**
   * `+?` equals `?` but hides the value from the planner. When the planner has used a value (in joins and limits),
   * SQLite replans the statement at every execution, which takes several times as long as the query.
   */
  protected override getCurrentParameterPlaceholder(): string {
    return '+?'
  }
}

/**
 * Always true, evaluated for each row. On SQLite it ends a query that takes too long: nothing else can stop a thread
 * that waits for a row. It comes first in a condition, because rows that another part excludes take time as well.
 */
export const isWithinDeadline = byDialect<SqlBool>({ sqlite: sql`check_deadline() = 1`, postgres: sql`true` })

/** Adds `isWithinDeadline` to every query; raw SQL adds it itself where it may read many rows. */
export class InterruptibleCompiler extends SqliteCompiler {
  protected override visitSelectQuery(node: SelectQueryNode): void {
    super.visitSelectQuery(
      node.from ? { ...node, where: WhereNode.create(withInterruption(node.where)) } : node,
    )
  }
}

function withInterruption(where: WhereNode | undefined): OperationNode {
  const condition = isWithinDeadline.toOperationNode()
  return where ? AndNode.create(condition, ParensNode.create(where.where)) : condition
}
