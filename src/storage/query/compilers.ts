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

type TwoFacedNode = RawNode & { [postgresVariant]?: RawNode }

/** One expression written for each database; which one is used is decided when the query is compiled. */
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
  protected override visitRaw(node: TwoFacedNode): void {
    super.visitRaw(node[postgresVariant] ?? node)
  }
}

const locks = new Set(['ForUpdate', 'ForNoKeyUpdate', 'ForShare', 'ForKeyShare', 'NoWait', 'SkipLocked'])

export class SqliteCompiler extends SqliteQueryCompiler {
  /** Row locks are dropped: a write already has the whole file to itself. */
  protected override visitSelectQuery(node: SelectQueryNode): void {
    const endModifiers = node.endModifiers?.filter((it) => !it.modifier || !locks.has(it.modifier))
    super.visitSelectQuery(endModifiers ? { ...node, endModifiers } : node)
  }

  /**
   * `+?` is `?`, out of the planner's sight. Where the planner has looked at a value (in joins and limits),
   * SQLite plans the statement anew at every execution, which takes several times as long as the query.
   */
  protected override getCurrentParameterPlaceholder(): string {
    return '+?'
  }
}

/**
 * True, asked for each row: where a question on SQLite is ended that takes too long. SQLite has nothing else that a
 * thread which waits for a row could be stopped by. It comes first in a condition: rows that another part of it
 * leaves out are rows as well.
 */
export const isNotInterrupted = byDialect<SqlBool>({ sqlite: sql`goes_on() = 1`, postgres: sql`true` })

/** Has every query say `goesOn` by itself; what is written as SQL says it where it may read many rows. */
export class InterruptibleCompiler extends SqliteCompiler {
  protected override visitSelectQuery(node: SelectQueryNode): void {
    super.visitSelectQuery(node.from ? { ...node, where: WhereNode.create(whileGoing(node.where)) } : node)
  }
}

function whileGoing(where: WhereNode | undefined): OperationNode {
  const going = isNotInterrupted.toOperationNode()
  return where ? AndNode.create(going, ParensNode.create(where.where)) : going
}
