import { type Expression, expressionBuilder, type SqlBool, sql } from 'kysely'
import type { Instant } from '../core/time.ts'
import type { Tables } from '../storage/schema/tables.ts'
import {
  doubleLiteral,
  endsWith,
  matchesPattern,
  startsWith,
  type TextColumn,
  textContains,
} from '../storage/search/text-comparisons.ts'
import type { ConditionValue, TimeUnit } from './conditions/contract.ts'
import { day, parseDate, toComparable, windowStart } from './instants.ts'

export type Predicate = Expression<SqlBool>
export type Comparison = { operator: string; value?: ConditionValue | undefined }

export const eb = expressionBuilder<Tables, never>()

export const always: Predicate = eb.and([])
export const never: Predicate = eb.or([])

/** `rules.ts` refuses any other operator before. */
const unknown = ({ operator }: Comparison): never => {
  throw new Error(`No such comparison: ${operator}`)
}

export const ref = (column: string) => sql.ref<string | number | null>(column)
const isKnown = (column: string): Predicate => eb(ref(column), 'is not', null)
const isNull = (column: string): Predicate => eb(ref(column), 'is', null)

/** The list may be empty; then nothing matches. */
export const isIn = (column: string, list: readonly string[]): Predicate =>
  list.length === 0 ? never : eb(ref(column), 'in', list)

/**
 * Negative operators and their opposites: with several values they require that there are some and that none matches.
 */
export const negations: Readonly<Record<string, string>> = {
  notEquals: 'equals',
  notContains: 'contains',
  notIn: 'in',
}

const not = (column: string, test: Predicate): Predicate => eb.and([isKnown(column), eb.not(test)])

export function compareText(text: TextColumn, asked: Comparison): Predicate {
  const { operator, value } = asked
  const { column } = text
  const opposite = negations[operator]
  if (opposite !== undefined) return not(column, compareText(text, { operator: opposite, value }))
  switch (operator) {
    case 'equals':
      return eb(ref(column), '=', value as string)
    case 'in':
      return isIn(column, value as string[])
    case 'contains':
      return textContains(text, value as string)
    case 'startsWith':
      return startsWith(text, value as string)
    case 'endsWith':
      return endsWith(text, value as string)
    case 'matches':
      return matchesPattern(column, value as string)
    case 'isNull':
      return isNull(column)
    case 'isNotNull':
      return isKnown(column)
    default:
      return unknown(asked)
  }
}

const signs = {
  equals: '=',
  notEquals: '<>',
  greaterThan: '>',
  greaterThanOrEquals: '>=',
  lessThan: '<',
  lessThanOrEquals: '<=',
  after: '>',
  before: '<',
} as const

const isSign = (operator: string): operator is keyof typeof signs => operator in signs

export function compareNumber(column: string, asked: Comparison): Predicate {
  const { operator, value } = asked
  if (isSign(operator)) return eb(ref(column), signs[operator], doubleLiteral(value as number))
  if (operator === 'between') {
    const { from, to } = value as { from: number; to: number }
    return eb.and([eb(ref(column), '>=', doubleLiteral(from)), eb(ref(column), '<=', doubleLiteral(to))])
  }
  if (operator === 'isNull') return isNull(column)
  return operator === 'isNotNull' ? isKnown(column) : unknown(asked)
}

export function compareDate(column: string, asked: Comparison, now: Instant): Predicate {
  const { operator, value } = asked
  const at = (date: unknown) => toComparable(parseDate(date as string))
  if (isSign(operator)) return eb(ref(column), signs[operator], at(value))
  if (operator === 'between') {
    const { from, to } = value as { from: string; to: string }
    return eb.and([eb(ref(column), '>=', at(from)), eb(ref(column), '<=', at(to))])
  }
  if (operator === 'withinLast' || operator === 'notWithinLast') {
    const { amount, unit } = value as { amount: number; unit: TimeUnit }
    const start = toComparable(Math.ceil(windowStart(now, amount, unit)))
    return eb(ref(column), operator === 'withinLast' ? '>=' : '<', start)
  }
  if (operator === 'isNull') return isNull(column)
  return operator === 'isNotNull' ? isKnown(column) : unknown(asked)
}

/**
 * Days from the column's instant until now, fractions included. The instant itself is compared, in whole
 * milliseconds, so that an index can be used and both databases agree.
 */
export function compareDays(column: string, asked: Comparison, now: Instant): Predicate {
  const { operator, value } = asked
  const instantOf = (days: number) => Date.parse(now) - days * day
  const older = (days: number) => eb(ref(column), '<', toComparable(Math.ceil(instantOf(days))))
  const atLeast = (days: number) => eb(ref(column), '<=', toComparable(Math.floor(instantOf(days))))
  const younger = (days: number) => eb(ref(column), '>', toComparable(Math.floor(instantOf(days))))
  const atMost = (days: number) => eb(ref(column), '>=', toComparable(Math.ceil(instantOf(days))))
  switch (operator) {
    case 'equals':
      return eb.and([atLeast(value as number), atMost(value as number)])
    case 'notEquals':
      return eb.or([older(value as number), younger(value as number)])
    case 'greaterThan':
      return older(value as number)
    case 'greaterThanOrEquals':
      return atLeast(value as number)
    case 'lessThan':
      return younger(value as number)
    case 'lessThanOrEquals':
      return atMost(value as number)
    case 'between': {
      const { from, to } = value as { from: number; to: number }
      return eb.and([atLeast(from), atMost(to)])
    }
    case 'isNull':
      return isNull(column)
    case 'isNotNull':
      return isKnown(column)
    default:
      return unknown(asked)
  }
}
