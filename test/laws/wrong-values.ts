import { z } from 'zod'
import { unwrap } from '../../src/core/schema.ts'
import type { Field } from './fields.ts'

/** A placeholder for raw text in the JSON that JSON.stringify would not produce. */
const raw = (text: string): string => `@@${text}@@`
export const withRaw = (json: string): string =>
  json.replace(/"@@(.*?)@@"/gs, (_, text: string) => JSON.parse(`"${text}"`))

/** More levels than any recursive function survives. */
export const endless = 20_000

/** Nested objects. */
export const deep = (levels: number): string => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`
const long = 'x'.repeat(100_000)
/** For fields that may hold a whole script. */
const longer = 'x'.repeat(1_000_001)

/** Values that are invalid for this kind of field, regardless of its limits. */
export function wrongFor({ schema, resource }: Field): [what: string, value: unknown][] {
  const inner = unwrap(schema)
  const nothing: [string, unknown][] = schema.safeParse(null).success ? [] : [['null', null]]
  const of = (kind: string): [string, unknown][] => {
    const values: Record<string, unknown> = {
      text: 'nope',
      number: 7,
      flag: true,
      list: [],
      object: { a: 1 },
    }
    return Object.entries(values).flatMap(([other, value]) =>
      other === kind ? [] : [[`is a ${other}`, value]],
    )
  }
  if (inner instanceof z.ZodObject) return [...of('object'), ...nothing]
  if (inner instanceof z.ZodRecord) return [...of('object'), ...nothing, ...wrongObjects]
  if (inner instanceof z.ZodArray) return [...of('list'), ...nothing, uncountable]
  if (inner instanceof z.ZodBoolean) return [...of('flag'), ...nothing, ['is "true"', 'true'], ['is 1', 1]]
  if (inner instanceof z.ZodNumber) return [...of('number'), ...nothing, ...wrongNumbers]
  if (inner instanceof z.ZodUnion) return nothing
  const choice = inner instanceof z.ZodEnum || inner instanceof z.ZodLiteral ? [['is no choice', 'nope']] : []
  const texts = of('text').filter(([what]) => what !== 'is a text')
  const tooLong = [long, longer].find((one) => !schema.safeParse(one).success) ?? long
  return [
    ...texts,
    ...nothing,
    ['is too long', tooLong],
    ...wrongTexts,
    ...(resource ? wrongIds.filter(([, value]) => value !== '' || !isCleared(schema)) : []),
    ...choice,
  ] as [string, unknown][]
}

/** Some IDs are cleared by an empty text as well as by null. */
const isCleared = (schema: z.ZodType): boolean =>
  [null, ''].every((nothing) => schema.safeParse(nothing).success)

const wrongNumbers: [string, unknown][] = [
  ['is "7"', '7'],
  ['is beyond all numbers', raw('1e999')],
  ['is far below', -1e300],
]

/** Invalid IDs of any length. */
const uncountable: [string, unknown] = ['has a length that is no number', { length: { toString: null } }]

const wrongTexts: [string, unknown][] = [
  ['has a NUL', 'a\u0000b'],
  ['is half a surrogate pair', 'a\ud800'],
  ['is the other half', '\udc00a'],
  ['is a list of itself', ['a', 'b']],
  uncountable,
]

const someId = '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11'

export const wrongIds: [string, unknown][] = [
  ...['', 'nope', `{${someId}}`, `${someId}\n`, ` ${someId}`, someId.replaceAll('-', ''), "' or 1=1 --"].map(
    (text): [string, unknown] => [`is ${JSON.stringify(text)}`, text],
  ),
]

const wrongObjects: [string, unknown][] = [
  ['is too large', { a: long }],
  ['has too many fields', Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`k${i}`, i]))],
  ['is nested without end', raw(deep(endless))],
  ['is nested too deep for its size', raw(deep(2500))],
  ['has a NUL in a value', { a: 'b\u0000' }],
  ['has a NUL in a key', { 'a\u0000': 1 }],
  ['has half a surrogate pair in it', { a: { b: ['\ud800'] } }],
  ['has half a surrogate pair in a key', { '\udc00': 1 }],
]
