import { z } from 'zod'
import { bodyLimitOf, type Endpoint } from '../../src/core/endpoint.ts'
import { safeParse, unwrap } from '../../src/core/schema.ts'
import { put, toWire } from './calls.ts'
import { holdsOdd } from './contract.ts'
import { type Field, inputsOf, optional } from './fields.ts'
import type { Scenario } from './scenarios.ts'
import type { Wire } from './wire.ts'
import { deep, endless, withRaw, wrongFor, wrongIds } from './wrong-values.ts'

/** A request with one fault. */
export type Mutation = {
  what: string
  wire: Wire
  /** Refused as a client error, or accepted because the value is legal or dropped from telemetry. */
  outcome: 'refused' | 'either'
  /** The path that a 400 has to name. */
  path?: string
}

/** All faulty requests of an entry, derived from a valid call. */
export function mutationsOf(entry: Endpoint, scenario: Scenario): Mutation[] {
  const all = [
    ...bodies(entry, scenario),
    ...fields(entry, scenario),
    ...queries(entry, scenario),
    ...paths(entry, scenario),
  ]
  // Those that may succeed come last, as they may consume what others need.
  return [
    ...all.filter(({ outcome }) => outcome === 'refused'),
    ...all.filter(({ outcome }) => outcome === 'either'),
  ]
}

/** Faults of the body as a whole. */
function bodies(entry: Endpoint, scenario: Scenario): Mutation[] {
  if (entry.method === 'GET') return []
  const wire = toWire(entry, scenario.input, scenario.token)
  const limit = bodyLimitOf(entry)
  const telemetry = entry.access.who === 'agent'
  const sent = (what: string, body: string, more: Partial<Mutation> = {}): Mutation => ({
    what,
    wire: { ...wire, body },
    outcome: 'refused',
    ...more,
  })
  const typed = (type: string): Mutation => ({
    what: `content type ${type}`,
    wire: { ...wire, body: JSON.stringify(scenario.input.body ?? {}), headers: { 'content-type': type } },
    outcome: 'refused',
  })
  const whole = (scenario.input.body ?? {}) as Record<string, unknown>
  const unknown = JSON.stringify({ ...whole, aFieldOfNobody: 1 })
  const mayBeEmpty = !entry.body || optional(entry.body)
  return [
    ...[
      '{',
      '{"a":}',
      "{'a':1}",
      '{"a":1,}',
      'nonsense',
      '\u0000',
      '{"a":"\u0001"}',
      `${'['.repeat(100_000)}`,
    ].map((text) => sent(`malformed JSON ${JSON.stringify(text.slice(0, 20))}`, text)),
    ...['[]', '[{}]', '"text"', '7', 'true'].map((text) => sent(`${text} as body`, text, { path: 'body' })),
    sent('a body of null', 'null', { outcome: mayBeEmpty ? 'either' : 'refused' }),
    sent('an empty body', '', { outcome: mayBeEmpty ? 'either' : 'refused' }),
    sent('an empty object', '{}', { outcome: mayBeEmpty || telemetry ? 'either' : 'refused' }),
    sent('an unknown field', unknown, telemetry ? { outcome: 'either' } : { path: 'body.aFieldOfNobody' }),
    ...['{"__proto__":{"isSystem":true}}', '{"constructor":{"prototype":{"x":1}}}'].map((text) =>
      sent(`prototype keys ${text}`, text),
    ),
    sent(
      'an unknown field nested without end',
      `{"deep":${deep(endless)}}`,
      telemetry ? { outcome: 'either' } : {},
    ),
    {
      what: 'a body that says it is too large',
      wire: { ...wire, body: '{', claims: limit + 1 },
      outcome: 'refused',
    },
    ...[
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data',
      'application/xml',
      'a/b; c',
      ',',
    ].map(typed),
  ]
}

/** Each field of the body with each invalid value. */
function fields(entry: Endpoint, scenario: Scenario): Mutation[] {
  const ofBody = inputsOf(entry).filter(({ part }) => part === 'body')
  return ofBody.flatMap((field) => {
    const lenient = ofBody.some((other) => isLenient(other) && begins(field.path, other.path))
    const at = ['body', ...field.path].join('.')
    return wrongFor(field).map(([what, value]): Mutation => {
      const input = structuredClone(scenario.input)
      put(input, 'body', field.path, value)
      const body = withRaw(JSON.stringify(input.body))
      const wire = { ...toWire(entry, input, scenario.token), body }
      // A body beyond the limit is not parsed, so no field is named.
      if (body.length > bodyLimitOf(entry)) return { what: `${at} ${what}`, wire, outcome: 'refused' }
      return {
        what: `${at} ${what}`,
        wire,
        ...(lenient || isCleaned(field, value) || isCut(field, value)
          ? { outcome: 'either' }
          : { outcome: 'refused', path: at }),
      }
    })
  })
}

const begins = (path: string[], start: string[]): boolean => start.every((step, i) => path[i] === step)

/** Telemetry is sanitized if it cannot be stored. */
function isCleaned({ schema }: Field, value: unknown): boolean {
  const { success, data } = holdsOdd(value) ? safeParse(schema, value) : { success: false, data: undefined }
  return success && !holdsOdd(data)
}

/** Telemetry is truncated if it is too long, instead of refusing the batch. */
function isCut({ schema }: Field, value: unknown): boolean {
  const nested = typeof value === 'string' && value.startsWith('@@')
  const { success, data } = safeParse(schema, nested ? JSON.parse(value.slice(2, -2)) : value)
  if (!success || data === undefined || data === null) return false
  return nested ? Object.hasOwn(data as object, 'cut') : textOf(data).length < textOf(value).length
}

const textOf = (value: unknown): string => JSON.stringify(value)

/** A bad value is dropped rather than refused. */
const isLenient = ({ schema }: Field): boolean => schema.safeParse(Symbol.iterator).success

/** Faults of the query string. */
function queries(entry: Endpoint, scenario: Scenario): Mutation[] {
  const wire = toWire(entry, scenario.input, scenario.token)
  const [path = '', given = ''] = wire.path.split('?')
  const asking = (what: string, text: string, more: Partial<Mutation> = {}): Mutation => ({
    what: `query ${what}`,
    wire: { ...wire, path: `${path}?${text}` },
    outcome: 'refused',
    ...more,
  })
  const known = inputsOf(entry).filter(({ part, path: at }) => part === 'query' && at.length === 1)
  const rest = (name: string) => {
    const others = new URLSearchParams(given)
    others.delete(name)
    return others.size > 0 ? `&${others}` : ''
  }
  return [
    asking('unknown', 'aFieldOfNobody=1', { path: 'query.aFieldOfNobody' }),
    ...['__proto__=1', 'constructor=1', '__proto__[x]=1', 'a[b]=1', '=1', '%00=1', '%ZZ=1'].map((text) =>
      asking(text, text),
    ),
    ...known.flatMap((field) => {
      const name = field.path[0]!
      const at = `query.${name}`
      const one = (what: string, value: string, more: Partial<Mutation> = {}) =>
        asking(`${name} ${what}`, `${name}=${value}${rest(name)}`, { path: at, ...more })
      const isText = unwrap(field.schema) instanceof z.ZodString && !field.resource
      const isNumber = unwrap(field.schema) instanceof z.ZodNumber
      const loose = { outcome: isText ? 'either' : 'refused' } as const
      return [
        one('twice', `1&${name}=2`),
        one('too long', 'x'.repeat(8000)),
        one('with NUL', 'a%00b'),
        one('nonsense', 'n%20o%20p%20e', loose),
        one('bad percent', '%ZZ', loose),
        one('bad UTF-8', '%FF%FE', loose),
        one('half a surrogate', '%ED%A0%80', loose),
        ...(isNumber ? wrongPages.map((value) => one(value, value, { outcome: 'either' })) : []),
        ...(field.resource
          ? wrongIds.map(([what, value]) => one(what, encodeURIComponent(String(value))))
          : []),
      ]
    }),
  ]
}

const wrongPages = [
  '-1',
  '0',
  '1.5',
  '1e3',
  '1e400',
  '-1e400',
  'NaN',
  'Infinity',
  '0x10',
  '',
  '%20',
  '%D9%A1',
  'null',
  '999999999999',
  '9007199254740991',
  '9007199254740993',
  '18446744073709551616',
]

/** Faults of the IDs in the path. */
function paths(entry: Endpoint, scenario: Scenario): Mutation[] {
  const wire = toWire(entry, scenario.input, scenario.token)
  return Object.keys(scenario.input.params).flatMap((name) => {
    const own = encodeURIComponent(String(scenario.input.params[name]))
    const junk = [
      'nope',
      '1',
      "'%20or%201=1--",
      '%00',
      '%ZZ',
      '%',
      '%FF%FE',
      '..%2f..%2fetc%2fpasswd',
      '%2e%2e',
      'null',
      'undefined',
      '%F0%9F%9A%80',
      'x'.repeat(150),
      'x'.repeat(5000),
      `${own}%00`,
      `${own}%0a`,
      `%20${own}`,
      `${own}.json`,
      `${own};a=b`,
      '__proto__',
      'constructor',
      '*',
      '[object%20Object]',
      '-1',
      '1e400',
    ]
    return junk.map(
      (value): Mutation => ({
        what: `path ${name} ${value.slice(0, 40)}`,
        wire: { ...wire, path: wire.path.replace(own, value) },
        outcome: 'refused',
      }),
    )
  })
}
