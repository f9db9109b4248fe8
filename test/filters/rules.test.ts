import { describe, expect, it } from 'vitest'
import { ConditionGroup, fields } from '../../src/filters/contract.ts'
import { toComparable, windowStart } from '../../src/filters/instants.ts'
import { findFaults } from '../../src/filters/rules.ts'

/** The faults of a tree, as path and message; faults of the shape come first. */
function faults(tree: unknown): Record<string, string> {
  const parsed = ConditionGroup.safeParse(tree)
  if (!parsed.success) {
    return Object.fromEntries(parsed.error.issues.map(({ path, message }) => [path.join('.'), message]))
  }
  return Object.fromEntries(findFaults(parsed.data, '').map(({ path, message }) => [path.slice(1), message]))
}
const group = (...conditions: unknown[]) => ({ operator: 'AND', conditions })
const of = (field: unknown, operator: unknown, value?: unknown) =>
  group({ field, operator, ...(value !== undefined && { value }) })
const nested = (levels: number): unknown =>
  levels === 1 ? of('hostname', 'isNull') : group(nested(levels - 1))

const aDate = 'must be an ISO 8601 date, or date and time with Z or an offset, such as 2026-01-31T12:00:00Z'
const value = 'conditions.0.value'

describe('conditions', () => {
  it.each<[string, unknown, Record<string, string>]>([
    ['nothing', undefined, { '': 'is required' }],
    ['a list', [], { '': 'must be a group: operator and conditions' }],
    ['an empty group', group(), { conditions: 'must have at least one condition' }],
    ['no conditions', { operator: 'OR' }, { conditions: 'must be a list of conditions' }],
    [
      'another operator of a group',
      { ...of('tags', 'isEmpty'), operator: 'NOT' },
      { operator: 'must be AND or OR' },
    ],
    [
      'an empty condition',
      group({}),
      { 'conditions.0.field': 'is required', 'conditions.0.operator': 'is required' },
    ],
    [
      'an unknown property',
      group({ field: 'tags', operator: 'isEmpty', not: true }),
      { 'conditions.0.not': 'is not a known field' },
    ],
    [
      'text for a condition',
      group('online'),
      { 'conditions.0': 'must be a condition or a group of conditions' },
    ],
    [
      'a misspelled field',
      of('hostnam', 'equals', 'a'),
      { 'conditions.0.field': 'Unknown field: hostnam: did you mean hostname?' },
    ],
    [
      'a field in wrong letter case',
      of('Hostname', 'equals', 'a'),
      { 'conditions.0.field': 'Unknown field: Hostname: did you mean hostname?' },
    ],
    ['an unknown field', of('qqqqqqqq', 'equals', 'a'), { 'conditions.0.field': 'Unknown field: qqqqqqqq' }],
    ['a prototype', of('__proto__', 'equals', 'a'), { 'conditions.0.field': 'Unknown field: __proto__' }],
    [
      'null',
      of('hostname', 'equals', null),
      { [value]: 'must be text, a number, a boolean, a list or an object' },
    ],
    ['no value', of('hostname', 'equals'), { [value]: 'is required' }],
    ['an extra value', of('hostname', 'isNull', 'x'), { [value]: 'must be left out with isNull' }],
    ['a number for text', of('hostname', 'contains', 7), { [value]: 'must be text' }],
    ['text for a number', of('hardware.cpuCores', 'equals', '4'), { [value]: 'must be a number' }],
    ['text for a boolean', of('isHeadless', 'equals', 'yes'), { [value]: 'must be true or false' }],
    ['a list in place of a single value', of('hostname', 'equals', ['a']), { [value]: 'must be text' }],
    [
      'a single value in place of a list',
      of('hostname', 'in', 'a'),
      { [value]: 'must be a list of text with in' },
    ],
    ['numbers in a list', of('hostname', 'in', ['a', 7]), { [`${value}.1`]: 'must be text' }],
    ['NUL', of('hostname', 'equals', 'a\0'), { [value]: 'must not contain a NUL character' }],
    ['a bad date', of('enrolledAt', 'before', '2026-02-30'), { [value]: aDate }],
    ['a local time', of('enrolledAt', 'before', '2026-02-03T10:00:00'), { [value]: aDate }],
    [
      'an unknown status',
      of('status', 'in', ['online', 'onlin']),
      {
        [`${value}.1`]:
          'must be one of online, offline, maintenance, decommissioned, quarantined, updating, pending: did you mean online?',
      },
    ],
    [
      'half a range',
      of('metrics.cpuPercent', 'between', { from: 1 }),
      { [`${value}.to`]: 'must be text or a number' },
    ],
    [
      'a range of dates for numbers',
      of('metrics.cpuPercent', 'between', { from: '2026-01-01', to: 7 }),
      { [`${value}.from`]: 'must be a number' },
    ],
    [
      'a reversed range',
      of('enrolledAt', 'between', { from: '2026-02-01', to: '2026-01-01' }),
      { [value]: 'from must not be after to' },
    ],
    [
      'an invalid window',
      of('enrolledAt', 'withinLast', 7),
      { [value]: 'must be amount and unit (one of minutes, hours, days, weeks, months) with withinLast' },
    ],
    [
      'an empty window',
      of('enrolledAt', 'withinLast', { amount: 0, unit: 'days' }),
      { [`${value}.amount`]: 'must be more than 0' },
    ],
    [
      'a window that is too long',
      of('enrolledAt', 'withinLast', { amount: 1e9, unit: 'days' }),
      { [`${value}.amount`]: 'must be at most 1000000' },
    ],
    [
      'a window of half a month',
      of('enrolledAt', 'withinLast', { amount: 0.5, unit: 'months' }),
      { [`${value}.amount`]: 'must be a whole number of months' },
    ],
    [
      'a window of years',
      of('enrolledAt', 'withinLast', { amount: 1, unit: 'years' }),
      { [`${value}.unit`]: 'must be one of minutes, hours, days, weeks, months' },
    ],
    [
      'an invalid custom field key',
      of('custom.A b', 'equals', 'x'),
      {
        'conditions.0.field':
          'Invalid custom field key: custom.A b: after custom. it needs a lower-case letter, then lower-case letters, digits and _',
      },
    ],
    [
      'a backreference',
      of('hostname', 'matches', '(a)\\1'),
      { [value]: 'is not an RE2 pattern: error parsing regexp: invalid escape sequence: `\\1`' },
    ],
    [
      'a long pattern',
      of('hostname', 'matches', 'a'.repeat(251)),
      { [value]: 'Regex pattern too long for field hostname (max 250 characters)' },
    ],
    [
      'a pattern that expands too much',
      of('hostname', 'matches', '(a?b?c?d?){200}'),
      { [value]: 'is too large: repeat less' },
    ],
    ...[
      'x((a?\\b|^b*)?){14}y',
      '(a?\\b|^b*){14}',
      '(((((a?\\b|^b*){2,}$){2,}$){2,}$){2,}$)',
      '(a|b|^)?'.repeat(16),
      `(${'\\bx|^|'.repeat(16)}y)*z`,
    ].map((pattern): [string, unknown, Record<string, string>] => [
      `the assertions of ${pattern}`,
      of('hostname', 'matches', pattern),
      { [value]: 'allows too many sequences of ^, $, \\b and \\B: repeat less' },
    ]),
    [
      'a long list',
      of('hostname', 'in', Array(501).fill('a')),
      { [value]: 'must not list more than 500 values' },
    ],
    [
      'many lists',
      group(...Array(11).fill(of('hostname', 'in', Array(500).fill('a')).conditions[0])),
      { '': 'must not list more than 5000 values in total' },
    ],
    [
      'too many nodes',
      group(...Array(200).fill({ field: 'tags', operator: 'isEmpty' })),
      { '': 'must not contain more than 200 conditions and groups' },
    ],
  ])('with %s are refused', (_, tree, wanted) => {
    expect(faults(tree)).toEqual(wanted)
  })

  it('are refused with all faults at once, each with its path', () => {
    const tree = group(
      { field: 'hostnam', operator: 'equals', value: 'a' },
      {
        operator: 'OR',
        conditions: [
          { field: 'status', operator: 'contains', value: 'x' },
          { field: 'tags', operator: 'isEmpty' },
        ],
      },
      { field: 'hostname', operator: 'matches', value: '(' },
    )
    expect(Object.keys(faults(tree))).toEqual([
      'conditions.0.field',
      'conditions.1.conditions.0.operator',
      'conditions.2.value',
    ])
    expect(faults(tree)['conditions.1.conditions.0.operator']).toBe(
      'Operator contains not valid for field status: it takes equals, notEquals, in, notIn',
    )
  })

  it.each([
    Array(25).fill('\\bpc-\\d\\b').join('|'),
    `(${Array(25).fill('^pc-\\d$').join('|')})*`,
    '(?m)(^|,)(a=1)?(,|$)(b=2)?(,|$)(c=3)?(,|$)(d=4)?(,|$)(e=5)?(,|$)$',
    '^(\\b[a-z]+\\b[-.]?){20}$',
    'a?'.repeat(120),
  ])('may match %s', (pattern) => {
    expect(faults(of('hostname', 'matches', pattern))).toEqual({})
  })

  it('may be ten levels deep; deeper ones are refused, at any depth', () => {
    expect(faults(nested(10))).toEqual({})
    const deeper = faults(nested(11))
    expect(Object.values(deeper)).toEqual(['must not be nested more than 10 levels deep'])
    let endless: unknown = of('tags', 'isEmpty')
    for (let i = 0; i < 100_000; i += 1) endless = group(endless)
    expect(Object.values(faults(endless))).toEqual(['must not be nested more than 10 levels deep'])
  })

  it('may have 200 nodes, empty lists and aliases of architectures', () => {
    expect(faults(group(...Array(199).fill({ field: 'tags', operator: 'isEmpty' })))).toEqual({})
    expect(faults(of('hostname', 'in', []))).toEqual({})
    expect(faults(of('architecture', 'in', ['x86_64', 'aarch64']))).toEqual({})
  })

  it('accept the operators of their field type', () => {
    const of = (key: string) => fields.find((one) => one.key === key)!.operators
    const text = [
      'equals',
      'notEquals',
      'contains',
      'notContains',
      'startsWith',
      'endsWith',
      'matches',
      'in',
      'notIn',
      'isNull',
      'isNotNull',
    ]
    for (const key of ['hostname', 'displayName', 'agentVersion']) expect(of(key)).toEqual(text)
    expect(of('status')).toEqual(['equals', 'notEquals', 'in', 'notIn'])
    expect(of('tags')).toEqual(['hasAny', 'hasAll', 'isEmpty', 'isNotEmpty', 'contains'])
    for (const key of ['enrolledAt', 'lastSeenAt']) {
      expect(of(key)).toEqual(
        expect.arrayContaining([
          'equals',
          'notEquals',
          'before',
          'after',
          'between',
          'withinLast',
          'notWithinLast',
          'isNull',
          'isNotNull',
        ]),
      )
    }
  })
})

describe('a time window', () => {
  it.each([
    ['2026-03-31T12:00:00.000Z', 1, '2026-02-28T12:00:00.000Z'],
    ['2024-03-31T12:00:00.000Z', 1, '2024-02-29T12:00:00.000Z'],
    ['2026-01-15T00:00:00.000Z', 1, '2025-12-15T00:00:00.000Z'],
    ['2024-02-29T00:00:00.000Z', 12, '2023-02-28T00:00:00.000Z'],
    ['2024-02-29T00:00:00.000Z', 48, '2020-02-29T00:00:00.000Z'],
  ])('from %s goes %i calendar months back to %s', (now, months, start) => {
    expect(toComparable(windowStart(now, months, 'months'))).toBe(start)
  })

  it('beyond all dates is clamped to before the first or after the last instant', () => {
    expect(toComparable(windowStart('2026-01-01T00:00:00.000Z', 1_000_000, 'months'))).toBe('')
    expect(toComparable(Number.NEGATIVE_INFINITY) < '0000-01-01T00:00:00.000Z').toBe(true)
    expect(toComparable(Number.POSITIVE_INFINITY) > '9999-12-31T23:59:59.999Z').toBe(true)
  })
})
