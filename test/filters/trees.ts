import { type Condition, type ConditionGroup, type Field, fields } from '../../src/filters/contract.ts'
import { bigs, dates, type Places, reals, texts } from './fleet.ts'
import type { Random } from './random.ts'

const patterns = [
  '',
  '^$',
  '.',
  '^a',
  'b$|^A',
  '(?i)straße',
  '(?i)STRASSE',
  '\\d',
  '[[:alpha:]]+$',
  '(a+)+$',
  '\\bweb\\b',
  '(?i)k',
  'İ|ß',
  'a_b',
  '\\x{1F600}',
  '^\\PL*$',
  '(?i)σ',
  '.{3,}',
  '\\\\',
  '%',
  '(?s)a.b',
  'a.b',
  '(?m)^b',
  '[^a-z]',
  '\\pN',
  '(?i)[a-c]{3}',
  '\\Qa\\b\\E',
  '\\Bb',
  '^(web|WEB)-\\d+',
  '\\s',
  '(?i)ﬁ',
]
const days = [0, 0.5, 1, 7, 30, 31, 739_000, -30, 1e-9, 1e300, -1e300, 0.1, 365.25]
const dateInputs = [
  ...dates,
  '2026-03-31',
  '2024-02-29',
  '0001-01-01',
  '9999-12-31',
  '0000-01-01',
  '2026-03-31T14:00:00+02:00',
  '0000-01-01T00:00:00+14:00',
  '9999-12-31T23:59:59.999-12:00',
  '2026-03-31T12:00:00Z',
  '2026-03-31T12:00:00.0009Z',
]

/** A random tree over all fields and operators; half have one condition, where differences show best. */
export function randomTree(random: Random, places: Places, depth = 0): ConditionGroup {
  const width = depth === 0 && random.chance(0.5) ? 1 : 1 + random.below(3)
  return {
    operator: random.pick(['AND', 'OR']),
    conditions: Array.from({ length: width }, () =>
      depth < 4 && random.chance(0.3)
        ? randomTree(random, places, depth + 1)
        : randomCondition(random, places),
    ),
  }
}

function randomCondition(random: Random, places: Places): Condition {
  const field = random.pick(fields)
  const operator = random.pick(field.operators)
  const key = field.key === 'custom.<key>' ? `custom.${random.pick(['x', 'y', 'z_1', 'nobody'])}` : field.key
  const value = valueFor(random, places, field, operator)
  return { field: key, operator, ...(value !== undefined && { value }) }
}

function valueFor(random: Random, places: Places, field: Field, operator: string): Condition['value'] {
  if (/^is(Not)?(Null|Empty)$/.test(operator)) return undefined
  if (operator === 'matches') return random.pick(patterns)
  if (operator === 'withinLast' || operator === 'notWithinLast') return window(random)
  const scalar = () => scalarFor(random, places, field)
  if (['in', 'notIn', 'hasAny', 'hasAll'].includes(operator)) {
    return Array.from({ length: random.below(4) }, () => scalar() as string)
  }
  if (operator !== 'between') return scalar()
  const ends = [scalar(), scalar()] as (string | number)[]
  const number = (end: string | number) => (typeof end === 'string' ? Date.parse(end) : end)
  const [from, to] = ends.sort((a, b) => number(a) - number(b)) as [number, number]
  return { from, to }
}

function window(random: Random): Condition['value'] {
  const unit = random.pick(['minutes', 'hours', 'days', 'weeks', 'months'] as const)
  const amounts = unit === 'months' ? [1, 2, 13, 25, 24_315, 1_000_000] : [1, 7, 0.5, 1e-9, 1_000_000, 1.1]
  return { amount: random.pick(amounts), unit }
}

function scalarFor(random: Random, places: Places, field: Field): string | number | boolean {
  const ids: Record<string, string[]> = {
    orgId: places.orgIds,
    siteId: places.siteIds,
    groupId: places.groupIds,
  }
  if (field.key in ids) return random.pick([...ids[field.key]!, 'nobody'])
  switch (field.type) {
    case 'number':
      if (field.key.startsWith('daysSince')) return random.pick(days)
      return random.pick([...bigs, ...reals, 1.5, 3.999999999, -0, 1e308])
    case 'boolean':
      return random.chance(0.5)
    case 'datetime':
      return random.pick(dateInputs)
    case 'enum':
      return random.pick([...field.values!, ...Object.keys(field.aliases ?? {})])
    default:
      return random.chance(0.8) ? random.pick(texts) : random.pick(texts).slice(0, 2).toWellFormed()
  }
}
