import type { Operator } from '../filters/contract.ts'

export type ValueShape = 'scalar' | 'text' | 'list' | 'range' | 'window' | 'none'

/** The rows of `svc help filters`: what the operators of a group are for. */
const groups = {
  value: 'a value, or a date',
  text: 'text; letter case is ignored',
  pattern: 'a regular expression (RE2), anywhere in the text',
  choice: 'one of these',
  list: 'lists, such as tags',
  known: 'whether the device has reported a value',
  date: 'a date, such as 2026-01-31 or 2026-01-31T12:00:00Z',
  range: 'including both',
  window: 'minutes, hours, days, weeks or months before now',
}

type WrittenOperator = {
  group: keyof typeof groups
  /** As people write it; the first one is printed. */
  spellings: readonly string[]
  value: ValueShape
  /** As `svc filters explain` reads it out. */
  verb: string
  /** Of several values none may satisfy it. */
  negative?: true
}

export const writtenOperators: Readonly<Record<Operator, WrittenOperator>> = {
  equals: { group: 'value', spellings: ['='], value: 'scalar', verb: 'is' },
  notEquals: { group: 'value', spellings: ['!='], value: 'scalar', verb: 'is not', negative: true },
  greaterThan: { group: 'value', spellings: ['>'], value: 'scalar', verb: 'is more than' },
  greaterThanOrEquals: { group: 'value', spellings: ['>='], value: 'scalar', verb: 'is at least' },
  lessThan: { group: 'value', spellings: ['<'], value: 'scalar', verb: 'is less than' },
  lessThanOrEquals: { group: 'value', spellings: ['<='], value: 'scalar', verb: 'is at most' },
  contains: { group: 'text', spellings: ['contains'], value: 'text', verb: 'contains' },
  notContains: {
    group: 'text',
    spellings: ['not contains'],
    value: 'text',
    verb: 'does not contain',
    negative: true,
  },
  startsWith: { group: 'text', spellings: ['starts with'], value: 'text', verb: 'starts with' },
  endsWith: { group: 'text', spellings: ['ends with'], value: 'text', verb: 'ends with' },
  matches: { group: 'pattern', spellings: ['matches', '~'], value: 'text', verb: 'matches the pattern' },
  in: { group: 'choice', spellings: ['in'], value: 'list', verb: 'is one of' },
  notIn: { group: 'choice', spellings: ['not in'], value: 'list', verb: 'is none of', negative: true },
  hasAny: { group: 'list', spellings: ['has any'], value: 'list', verb: 'has at least one of' },
  hasAll: { group: 'list', spellings: ['has all'], value: 'list', verb: 'has all of' },
  isEmpty: { group: 'list', spellings: ['is empty'], value: 'none', verb: 'has nothing' },
  isNotEmpty: { group: 'list', spellings: ['is not empty'], value: 'none', verb: 'has something' },
  isNull: { group: 'known', spellings: ['is null'], value: 'none', verb: 'is unknown' },
  isNotNull: { group: 'known', spellings: ['is not null'], value: 'none', verb: 'is known' },
  before: { group: 'date', spellings: ['before'], value: 'text', verb: 'is before' },
  after: { group: 'date', spellings: ['after'], value: 'text', verb: 'is after' },
  between: { group: 'range', spellings: ['between'], value: 'range', verb: 'is from' },
  withinLast: { group: 'window', spellings: ['within'], value: 'window', verb: 'is within the last' },
  notWithinLast: {
    group: 'window',
    spellings: ['not within'],
    value: 'window',
    verb: 'is not within the last',
  },
}

const examples: Partial<Record<ValueShape, string>> = {
  list: ' (a, b)',
  range: ' A and B',
  window: ' 7 days',
}

/** The operators as `svc help filters` lists them: what is written, and from the 24th column what it is for. */
export function operatorRows(): string {
  const all = Object.values(writtenOperators)
  return Object.entries(groups)
    .map(([group, purpose]) => {
      const written = all
        .filter((one) => one.group === group)
        .map(({ spellings, value }) => spellings.join(' or ') + (examples[value] ?? ''))
        .join(group === 'value' ? ' ' : ', ')
      return written.length < 22
        ? `  ${written.padEnd(22)}${purpose}`
        : `  ${written}\n${' '.repeat(24)}${purpose}`
    })
    .join('\n')
}

/** `!=, not contains and not in` */
export function negativeOperators(): string {
  const written = Object.values(writtenOperators).flatMap(({ negative, spellings: [first] }) =>
    negative ? [first!] : [],
  )
  return new Intl.ListFormat('en-GB', { type: 'conjunction' }).format(written)
}
