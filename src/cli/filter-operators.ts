import type { Operator } from '../filters/contract.ts'

export type ValueShape = 'scalar' | 'text' | 'list' | 'range' | 'window' | 'none'

type WrittenOperator = {
  /** As people write it; the first one is printed. */
  spellings: readonly string[]
  value: ValueShape
  /** As `svc filters explain` reads it out. */
  verb: string
}

export const writtenOperators: Readonly<Record<Operator, WrittenOperator>> = {
  equals: { spellings: ['='], value: 'scalar', verb: 'is' },
  notEquals: { spellings: ['!='], value: 'scalar', verb: 'is not' },
  greaterThan: { spellings: ['>'], value: 'scalar', verb: 'is more than' },
  greaterThanOrEquals: { spellings: ['>='], value: 'scalar', verb: 'is at least' },
  lessThan: { spellings: ['<'], value: 'scalar', verb: 'is less than' },
  lessThanOrEquals: { spellings: ['<='], value: 'scalar', verb: 'is at most' },
  contains: { spellings: ['contains'], value: 'text', verb: 'contains' },
  notContains: { spellings: ['not contains'], value: 'text', verb: 'does not contain' },
  startsWith: { spellings: ['starts with'], value: 'text', verb: 'starts with' },
  endsWith: { spellings: ['ends with'], value: 'text', verb: 'ends with' },
  matches: { spellings: ['matches', '~'], value: 'text', verb: 'matches the pattern' },
  in: { spellings: ['in'], value: 'list', verb: 'is one of' },
  notIn: { spellings: ['not in'], value: 'list', verb: 'is none of' },
  hasAny: { spellings: ['has any'], value: 'list', verb: 'has at least one of' },
  hasAll: { spellings: ['has all'], value: 'list', verb: 'has all of' },
  isEmpty: { spellings: ['is empty'], value: 'none', verb: 'has nothing' },
  isNotEmpty: { spellings: ['is not empty'], value: 'none', verb: 'has something' },
  isNull: { spellings: ['is null'], value: 'none', verb: 'is unknown' },
  isNotNull: { spellings: ['is not null'], value: 'none', verb: 'is known' },
  before: { spellings: ['before'], value: 'text', verb: 'is before' },
  after: { spellings: ['after'], value: 'text', verb: 'is after' },
  between: { spellings: ['between'], value: 'range', verb: 'is from' },
  withinLast: { spellings: ['within'], value: 'window', verb: 'is within the last' },
  notWithinLast: { spellings: ['not within'], value: 'window', verb: 'is not within the last' },
}
