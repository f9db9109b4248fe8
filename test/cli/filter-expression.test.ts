import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CliError } from '../../src/cli/exit-codes.ts'
import { parseFilter, printFilter, simplify } from '../../src/cli/filter-expression.ts'
import { isGroup, maxDepth, timeUnits } from '../../src/filters/conditions/contract.ts'
import {
  type Condition,
  ConditionGroup,
  fields,
  findField,
  type Operator,
} from '../../src/filters/contract.ts'
import { findFaults } from '../../src/filters/rules.ts'

const and = (...conditions: ConditionGroup['conditions']): ConditionGroup => ({ operator: 'AND', conditions })
const or = (...conditions: ConditionGroup['conditions']): ConditionGroup => ({ operator: 'OR', conditions })

describe('a filter expression', () => {
  it('binds and tighter than or, and parentheses tighter than both', () => {
    const [a, b, c] = ['a', 'b', 'c'].map((value) => ({ field: 'hostname', operator: 'equals', value }))
    expect(parseFilter('hostname = a')).toEqual(and(a!))
    expect(parseFilter('((hostname = a))')).toEqual(and(a!))
    expect(parseFilter('hostname = a and hostname = b or hostname = c')).toEqual(or(and(a!, b!), c!))
    expect(parseFilter('hostname = a AND (hostname = b Or hostname = c)')).toEqual(and(a!, or(b!, c!)))
    expect(parseFilter('(hostname = a and hostname = b)\n and hostname = c')).toEqual(and(and(a!, b!), c!))
  })

  it.each<[string, Condition]>([
    ['status = online', { field: 'status', operator: 'equals', value: 'online' }],
    ['hostname != 8', { field: 'hostname', operator: 'notEquals', value: '8' }],
    ['hardware.cpuCores >= 8', { field: 'hardware.cpuCores', operator: 'greaterThanOrEquals', value: 8 }],
    ['uptimeSeconds<1e3', { field: 'uptimeSeconds', operator: 'lessThan', value: 1000 }],
    ['isHeadless = TRUE', { field: 'isHeadless', operator: 'equals', value: true }],
    ['lastUser = true', { field: 'lastUser', operator: 'equals', value: 'true' }],
    ['some.day = 2.5', { field: 'some.day', operator: 'equals', value: 2.5 }],
    ['some.day = "2.5"', { field: 'some.day', operator: 'equals', value: '2.5' }],
    ['custom.rack = 12', { field: 'custom.rack', operator: 'equals', value: '12' }],
    ['hostname not contains sql', { field: 'hostname', operator: 'notContains', value: 'sql' }],
    ['hostname starts with web-', { field: 'hostname', operator: 'startsWith', value: 'web-' }],
    ["hostname ends with '-1'", { field: 'hostname', operator: 'endsWith', value: '-1' }],
    [
      String.raw`hostname ~ "^web\d+\.\"x\"$"`,
      { field: 'hostname', operator: 'matches', value: String.raw`^web\d+\."x"$` },
    ],
    ['hostname matches ^web', { field: 'hostname', operator: 'matches', value: '^web' }],
    ['osType in (windows,linux)', { field: 'osType', operator: 'in', value: ['windows', 'linux'] }],
    ['osType not in ()', { field: 'osType', operator: 'notIn', value: [] }],
    ['tags has any (prod, "to do")', { field: 'tags', operator: 'hasAny', value: ['prod', 'to do'] }],
    ['tags has all (prod)', { field: 'tags', operator: 'hasAll', value: ['prod'] }],
    ['tags is empty', { field: 'tags', operator: 'isEmpty' }],
    ['tags is not empty', { field: 'tags', operator: 'isNotEmpty' }],
    ['lastUser is null', { field: 'lastUser', operator: 'isNull' }],
    ['lastUser IS NOT NULL', { field: 'lastUser', operator: 'isNotNull' }],
    [
      'enrolledAt before 2026-01-31T12:00:00Z',
      { field: 'enrolledAt', operator: 'before', value: '2026-01-31T12:00:00Z' },
    ],
    [
      'daysSinceEnrolled between 1 and 7',
      { field: 'daysSinceEnrolled', operator: 'between', value: { from: 1, to: 7 } },
    ],
    [
      'enrolledAt between 2026-01-01 and 2026-02-01',
      { field: 'enrolledAt', operator: 'between', value: { from: '2026-01-01', to: '2026-02-01' } },
    ],
    [
      'lastSeenAt within 1 day',
      { field: 'lastSeenAt', operator: 'withinLast', value: { amount: 1, unit: 'days' } },
    ],
    [
      'lastSeenAt not within last 2 weeks',
      { field: 'lastSeenAt', operator: 'notWithinLast', value: { amount: 2, unit: 'weeks' } },
    ],
  ])('%s', (text, condition) => {
    expect(parseFilter(text)).toEqual(and(condition))
    expect(parseFilter(printFilter(and(condition)))).toEqual(and(condition))
  })

  it.each([
    ['hostname lik desk', 'column 10: expected an operator such as =, contains or in, found "lik"', 9],
    ['hostname = ', 'column 12: expected a value, found the end', 11],
    ['', 'column 1: expected a field or (, found the end', 0],
    [
      'status = online an osType = linux',
      'column 17: expected and, or, or the end of the filter, found "an"',
      16,
    ],
    ['(status = online', 'column 17: expected and, or, or ), found the end', 16],
    ['status = online and', 'column 20: expected a field or (, found the end', 19],
    ['hardware.cpuCores > many', 'column 21: expected a number for hardware.cpuCores, found "many"', 20],
    ['isHeadless = maybe', 'column 14: expected true or false for isHeadless, found "maybe"', 13],
    [
      'lastSeenAt within 7 fortnights',
      'column 21: expected minutes, hours, days, weeks, months, found "fortnights"',
      20,
    ],
    ['tags has any prod', 'column 14: expected ( and values, such as (a, b), found "prod"', 13],
    ['tags has any (prod', 'column 19: expected , or ), found the end', 18],
    ['tags has prod', 'column 6: expected has any, has all, found "has"', 5],
    ['hostname = and', 'column 12: expected a value; as text it is written "and", found "and"', 11],
    ['hostname = "x', 'column 12: expected " at the end of this text', 11],
    ['hostname ! x', 'column 10: expected !=', 9],
  ])('with an error names its position: %s', (text, message, column) => {
    const said = messageOf(text)
    const [first, line, caret] = said.split('\n')
    expect(first).toBe(`The filter is wrong at ${message}`)
    expect([line, caret]).toEqual([`  ${text}`, `  ${' '.repeat(column)}^`])
  })

  it('of many lines is shortened to the position of the error', () => {
    const [first, line, caret] = messageOf(`status = online\nand ${'hostname = x or '.repeat(20)}oops`).split(
      '\n',
    )
    expect(first).toBe(
      'The filter is wrong at line 2, column 329: expected an operator such as =, contains or in, found the end',
    )
    expect(line!.length).toBeLessThan(80)
    expect(line!.slice(0, caret!.length - 1)).toMatch(/^ {2}….* oops$/)
  })

  it('may be long; one that is nested too deep is refused without a stack overflow', () => {
    const long = Array.from({ length: 20_000 }, (_, i) => `hostname = pc-${i}`).join(' or ')
    expect(parseFilter(long).conditions).toHaveLength(20_000)
    const nested = (levels: number) => `${'('.repeat(levels)}status = online${')'.repeat(levels)}`
    expect(parseFilter(nested(maxDepth))).toEqual(parseFilter('status = online'))
    for (const levels of [maxDepth + 1, 200_000]) {
      expect(messageOf(nested(levels))).toContain(`column ${maxDepth + 1}: parentheses may be nested at most`)
    }
  })

  it('never fails in any other way, for any text', () => {
    const piece = fc.constantFrom(
      'hostname',
      '=',
      '!=',
      '~',
      '(',
      ')',
      ',',
      'and',
      'or',
      'not',
      'in',
      'is',
      'null',
      'has',
      'any',
      'within',
      '7',
      'days',
      'between',
      '"x"',
      '"',
      "'",
      '\\',
      '!',
      'online',
      'tags',
      '\n',
      'İ',
      '🚀',
    )
    const text = fc.array(fc.oneof(piece, fc.string({ unit: 'binary', maxLength: 4 })), { maxLength: 14 })
    const property = fc.property(text, fc.constantFrom('', ' '), (parts, space) => {
      try {
        const tree = parseFilter(parts.join(space))
        expect(parseFilter(printFilter(tree))).toEqual(tree)
      } catch (error) {
        expect(error).toBeInstanceOf(CliError)
      }
    })
    fc.assert(property, { numRuns: 5000 })
  })
})

describe('a condition tree', () => {
  const word = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 8 }),
    fc.constantFrom('and', 'true', '7', 'a b', '\\n', '\\', '"', ''),
  )
  const number = fc.oneof(fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true })).map((n) => n + 0)
  const key = fc.oneof(
    fc.constantFrom(...fields.map((field) => field.key.replace('<key>', 'rack'))),
    fc.string({ unit: 'binary', minLength: 1, maxLength: 6 }),
  )
  const scalarOf = (field: string) => {
    const type = findField(field)?.type
    if (type === 'number') return fc.oneof(number, word)
    if (type === 'boolean') return fc.oneof(fc.boolean(), word)
    return type === undefined ? fc.oneof(number, fc.boolean(), word) : word
  }
  const rangeEnd = (field: string) => scalarOf(field).filter((it) => typeof it !== 'boolean')
  const condition: fc.Arbitrary<Condition> = key.chain((field) => {
    const its = (operator: Operator, value: fc.Arbitrary<unknown> | undefined) =>
      value ? value.map((it) => ({ field, operator, value: it })) : fc.constant({ field, operator })
    const scalar = scalarOf(field)
    return fc.oneof(
      ...(['equals', 'notEquals', 'greaterThan', 'lessThanOrEquals'] as const).map((it) => its(it, scalar)),
      ...(['contains', 'notContains', 'startsWith', 'endsWith', 'matches', 'before', 'after'] as const).map(
        (it) => its(it, word),
      ),
      ...(['in', 'notIn', 'hasAny', 'hasAll'] as const).map((it) =>
        its(it, fc.array(word, { maxLength: 3 })),
      ),
      ...(['isEmpty', 'isNotEmpty', 'isNull', 'isNotNull'] as const).map((it) => its(it, undefined)),
      its('between', fc.record({ from: rangeEnd(field), to: rangeEnd(field) })),
      its('withinLast', fc.record({ amount: number, unit: fc.constantFrom(...timeUnits) })),
    ) as fc.Arbitrary<Condition>
  })
  const tree = fc.letrec<{ node: Condition | ConditionGroup; group: ConditionGroup }>((tie) => ({
    node: fc.oneof({ depthSize: 'small' }, condition, tie('group')),
    group: fc.record({
      operator: fc.constantFrom('AND', 'OR'),
      conditions: fc.array(tie('node'), { minLength: 1, maxLength: 4 }),
    }),
  })).group

  it('is parsed back from its printed form, without groups of one', () => {
    const property = fc.property(tree, (whole) => {
      const simple = simplify(whole)
      const wanted = isGroup(simple) ? simple : and(simple)
      expect(parseFilter(printFilter(whole))).toEqual(wanted)
      expect(printFilter(parseFilter(printFilter(whole)))).toBe(printFilter(whole))
    })
    fc.assert(property, { numRuns: 1000 })
  })

  it('is printed without unnecessary parentheses', () => {
    const text =
      'status = online and (tags has any (prod, web) or hostname contains sql and lastUser is null)'
    expect(printFilter(parseFilter(text))).toBe(text)
  })

  it('that was parsed is valid for the service', () => {
    const text =
      'status = online and hardware.cpuCores >= 8 and (tags has any (prod, web) or hostname contains sql) and lastSeenAt within 7 days'
    expect(findFaults(ConditionGroup.parse(parseFilter(text)), 'where')).toEqual([])
  })
})

function messageOf(text: string): string {
  try {
    parseFilter(text)
  } catch (error) {
    if (error instanceof CliError) return error.message
    throw error
  }
  throw new Error(`${text} was not refused`)
}
