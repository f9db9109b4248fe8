import { z } from 'zod'
import { type Fault, invalid, Problem } from '../core/errors.ts'
import { firstTooExpensive, maxPatterns, patternError } from '../core/re2.ts'
import { safeParse } from '../core/schema.ts'
import { didYouMean } from '../core/suggest.ts'
import {
  type Condition,
  type ConditionGroup,
  type ConditionValue,
  isGroup,
  timeUnits,
} from './conditions/contract.ts'
import { customPrefix, type Field, fields, findField, type Operator } from './fields/contract.ts'

/** @throws invalid_request naming every fault with its path below `path`; filter_too_expensive */
export function checkConditions(conditions: ConditionGroup, path = 'body.conditions'): void {
  // First, because finding the faults of a pattern compiles it.
  checkCost(conditions, path)
  const faults = findFaults(conditions, path)
  if (faults.length > 0) throw invalid(faults)
}

/**
 * Every pattern is evaluated for every device. Filters stored before the limit existed may exceed it as well. @throws
 * filter_too_expensive naming the pattern that exceeds the limit
 */
export function checkCost(conditions: ConditionGroup, path = 'conditions'): void {
  const patterns = patternsIn(conditions, path)
  const expensive = firstTooExpensive(patterns.map(({ pattern }) => pattern))
  if (expensive === undefined) return
  const { at, field } = patterns.find(({ pattern }) => pattern === expensive)!
  const message =
    `the patterns of this filter are too expensive together, up to the one for ${field}: ` +
    `use at most ${maxPatterns}, with fewer repetitions and classes such as \\pL, or contains and startsWith`
  throw new Problem('filter_too_expensive', `${at}: ${message}`, { details: [{ path: at, message }] })
}

type Pattern = { pattern: string; field: string; at: string }

function patternsIn(group: ConditionGroup, path: string): Pattern[] {
  return group.conditions.flatMap((node, i): Pattern[] => {
    const at = `${path}.conditions.${i}`
    if (isGroup(node)) return patternsIn(node, at)
    const { field, operator, value } = node
    // A longer one is refused without being compiled.
    const isPattern = operator === 'matches' && typeof value === 'string' && value.length <= longestPattern
    return isPattern ? [{ pattern: value, field, at: `${at}.value` }] : []
  })
}

/** Faults of fields, operators and values; the contract checks the shape. */
export function findFaults(group: ConditionGroup, path: string): Fault[] {
  return group.conditions.flatMap((node, i) => {
    const at = `${path}.conditions.${i}`
    return isGroup(node) ? findFaults(node, at) : conditionFaults(node, at)
  })
}

function conditionFaults({ field: key, operator, value }: Condition, at: string): Fault[] {
  const field = findField(key)
  if (!field) return [{ path: `${at}.field`, message: fieldFault(key) }]
  if (!isOperator(field, operator))
    return [{ path: `${at}.operator`, message: operatorFault(field, operator) }]
  return valueFaults(field, operator, value).map(({ path, message }) => ({
    path: `${at}.value${path}`,
    message,
  }))
}

function fieldFault(key: string): string {
  if (key.startsWith(customPrefix)) {
    return `Invalid custom field key: ${key}: after custom. it needs a lower-case letter, then lower-case letters, digits and _`
  }
  const known = fields.map((one) => one.key)
  const meant = didYouMean(key, known)
  return `Unknown field: ${key}${meant === undefined ? '' : `: ${meant}`}`
}

const isOperator = (field: Field, operator: string): operator is Operator =>
  (field.operators as readonly string[]).includes(operator)

function operatorFault({ key, operators }: Field, operator: string): string {
  return `Operator ${operator} not valid for field ${key}: it takes ${operators.join(', ')}`
}

const date = z.union([z.iso.date(), z.iso.datetime({ offset: true })])
const aDate = 'must be an ISO 8601 date, or date and time with Z or an offset, such as 2026-01-31T12:00:00Z'

const longestPattern = 250

/** `path` of a fault is relative to the value. */
function valueFaults(field: Field, operator: Operator, value: ConditionValue | undefined): Fault[] {
  const wrong = (message: string, path = ''): Fault[] => [{ path, message }]
  switch (operator) {
    case 'isNull':
    case 'isNotNull':
    case 'isEmpty':
    case 'isNotEmpty':
      return value === undefined ? [] : wrong(`must be left out with ${operator}`)
    case 'in':
    case 'notIn':
    case 'hasAny':
    case 'hasAll':
      if (!Array.isArray(value)) return wrong(`must be a list of text with ${operator}`)
      return value.flatMap((one, i) => scalarFault(field, one).map((message) => ({ path: `.${i}`, message })))
    case 'between':
      return rangeFaults(field, value)
    case 'withinLast':
    case 'notWithinLast':
      return windowFaults(operator, value)
    case 'matches':
      if (typeof value !== 'string') return wrong('must be text')
      if (value.length > longestPattern) {
        return wrong(`Regex pattern too long for field ${field.key} (max ${longestPattern} characters)`)
      }
      return [patternError(value)].flatMap((fault) => (fault === undefined ? [] : wrong(fault)))
    default:
      return scalarFault(field, value).flatMap((message) => wrong(message))
  }
}

/** Faults of one value, alone or in a list. */
function scalarFault({ type, values, aliases = {} }: Field, value: unknown): string[] {
  if (value === undefined) return ['is required']
  switch (type) {
    case 'number':
      return typeof value === 'number' ? [] : ['must be a number']
    case 'boolean':
      return typeof value === 'boolean' ? [] : ['must be true or false']
    case 'datetime':
      return safeParse(date, value).success ? [] : [aDate]
    case 'enum': {
      if (typeof value === 'string' && (values?.includes(value) || Object.hasOwn(aliases, value))) return []
      const meant = typeof value === 'string' ? didYouMean(value, values ?? []) : undefined
      return [`must be one of ${values?.join(', ')}${meant === undefined ? '' : `: ${meant}`}`]
    }
    default:
      return typeof value === 'string' ? [] : ['must be text']
  }
}

function rangeFaults(field: Field, value: ConditionValue | undefined): Fault[] {
  if (typeof value !== 'object' || !('from' in value)) return [{ path: '', message: 'must be from and to' }]
  const { from, to } = value
  const faults = Object.entries({ from, to }).flatMap(([end, one]) =>
    scalarFault(field, one).map((message) => ({ path: `.${end}`, message })),
  )
  if (faults.length > 0) return faults
  const isBackwards =
    field.type === 'number' ? from > to : Date.parse(from as string) > Date.parse(to as string)
  return isBackwards ? [{ path: '', message: 'from must not be after to' }] : []
}

function windowFaults(operator: Operator, value: ConditionValue | undefined): Fault[] {
  if (typeof value !== 'object' || !('amount' in value)) {
    const units = timeUnits.join(', ')
    return [{ path: '', message: `must be amount and unit (one of ${units}) with ${operator}` }]
  }
  const { amount, unit } = value
  // Half a month has no defined length.
  if (unit !== 'months' || Number.isInteger(amount)) return []
  return [{ path: '.amount', message: 'must be a whole number of months' }]
}

/** A value with enum aliases replaced by the stored names. */
export function resolveAlias(
  { aliases }: Field,
  value: ConditionValue | undefined,
): ConditionValue | undefined {
  if (!aliases) return value
  const one = (text: string) => aliases[text] ?? text
  if (typeof value === 'string') return one(value)
  return Array.isArray(value) ? value.map(one) : value
}
