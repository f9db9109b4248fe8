import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { Heartbeat } from '../../src/agents/contract.ts'
import { api } from '../../src/api.ts'
import { type Contract, entriesOf } from '../../src/core/endpoint.ts'
import { compileFastValidator, declined } from '../../src/core/fast-validator.ts'
import { text } from '../../src/core/schema.ts'
import { NewEnrollmentKey } from '../../src/credentials/enrollment-keys/contract.ts'

/** Many of these are the values that schemas check for, or just beyond. */
const samples: unknown[] = [
  null,
  true,
  false,
  '',
  'ok',
  'warning',
  'agent',
  'server',
  '0.1.0',
  'a\u0000',
  '\ud800',
  0,
  1,
  -1,
  0.5,
  100,
  100.5,
  1e7,
  1e15,
  1e16,
  2 ** 53,
  Number.MAX_VALUE,
  [],
  {},
  [1],
  { cpuPercent: 1 },
  'x'.repeat(50),
  'x'.repeat(51),
  'x'.repeat(255),
  'x'.repeat(256),
  'f'.repeat(64),
  '2026-01-31T12:00:00Z',
  '2026-01-31',
  '12',
  '01923f7e-0000-7000-8000-000000000000',
]
const anything = fc.oneof(fc.constantFrom(...samples), fc.jsonValue() as fc.Arbitrary<unknown>)

/** Mostly values that the schema accepts. */
function cellsOf(schema: z.core.$ZodType): fc.Arbitrary<unknown> {
  const right = samples.filter((value) => z.safeParse(innermost(schema), value).success)
  if (right.length === 0) return anything
  return fc.oneof({ weight: 30, arbitrary: fc.constantFrom(...right) }, { weight: 1, arbitrary: anything })
}

/** Objects with the fields of a shape, and sometimes unknown ones. */
function objectsOf(shape: Record<string, z.core.$ZodType>, depth = 2): fc.Arbitrary<unknown> {
  const field = (schema: z.core.$ZodType): fc.Arbitrary<unknown> => {
    const inner = innermost(schema)
    const nested = inner instanceof z.ZodObject && depth > 0
    return nested
      ? fc.oneof(
          { weight: 1, arbitrary: anything },
          { weight: 20, arbitrary: objectsOf(inner.shape, depth - 1) },
        )
      : cellsOf(schema)
  }
  const known = Object.fromEntries(Object.entries(shape).map(([name, schema]) => [name, field(schema)]))
  const unknown = fc.dictionary(fc.constantFrom('extra', 'constructor', 'toString'), anything, { maxKeys: 1 })
  const some = fc.record(known, { requiredKeys: [] })
  return fc.tuple(some, unknown).map(([a, b]) => JSON.parse(JSON.stringify({ ...a, ...b })))
}

function innermost(schema: z.core.$ZodType): z.core.$ZodType {
  const { innerType } = schema._zod.def as unknown as { innerType?: z.core.$ZodType }
  return innerType ? innermost(innerType) : schema
}

function agrees(schema: z.ZodType, value: unknown): boolean {
  const before = JSON.stringify(value)
  const quick = compileFastValidator(schema)(value)
  expect(JSON.stringify(value)).toBe(before)
  if (quick === declined) return false
  expect(schema.safeParse(value)).toEqual({ success: true, data: quick })
  return true
}

describe('the compiled fast validator', () => {
  test.each([
    ['heartbeats', Heartbeat],
    ['metrics', innermost(Heartbeat.shape.metrics) as z.ZodObject],
  ])('equals the schema, or declines: %s', (_, schema) => {
    let accepted = 0
    const property = fc.property(objectsOf(schema.shape), (value) => {
      if (agrees(schema, value)) accepted += 1
    })
    fc.assert(property, { numRuns: 2000 })
    expect(accepted).toBeGreaterThan(40)
  })

  const schemas = entriesOf(api as Contract).flatMap(({ name, entry }) =>
    (['params', 'query', 'body'] as const).flatMap((part) => {
      const schema = entry[part]
      return schema instanceof z.ZodObject ? [[`${name} ${part}`, schema] as const] : []
    }),
  )

  test.each(schemas)('equals the schema, or declines: %s', (_, schema) => {
    fc.assert(
      fc.property(objectsOf(schema.shape), (value) => void agrees(schema, value)),
      { numRuns: 60 },
    )
  })

  test('accepts heartbeats of agents, with known and unknown fields', () => {
    const heartbeat = {
      status: 'ok',
      agentVersion: '0.1.0',
      hostname: 'reception-1',
      osVersion: 'Debian 12',
      uptime: 86_400,
      isVirtual: false,
      autoUpdate: true,
      role: 'agent',
      mainSilentSince: null,
      fromTheFuture: { yes: 1 },
      metrics: { cpuPercent: 12.5, ramPercent: 40, processCount: 300, load: 7 },
    }
    expect(agrees(Heartbeat, heartbeat)).toBe(true)
    expect(compileFastValidator(Heartbeat)(heartbeat)).toEqual({
      ...heartbeat,
      metrics: { cpuPercent: 12.5, ramPercent: 40, processCount: 300 },
    })
  })

  test('accepts a request that mints a key', () => {
    const orgId = '01923f7e-0000-7000-8000-000000000000'
    expect(agrees(NewEnrollmentKey, { orgId, name: 'Reception laptops', maxUsage: 5 })).toBe(true)
    expect(agrees(NewEnrollmentKey, { name: 'Reception laptops' })).toBe(false)
  })

  test.each([
    ['an invalid telemetry value', { status: 'ok', agentVersion: '1', uptime: 'long' }],
    ['a missing field', { status: 'ok' }],
    ['a value that is no object', []],
  ])('declines %s: the schema decides', (_, value) => {
    expect(compileFastValidator(Heartbeat)(value)).toBe(declined)
  })

  test.each<[string, z.ZodType, unknown]>([
    ['coercion', z.object({ limit: z.coerce.number() }), { limit: 5 }],
    ['a transformation', z.object({ name: z.string().trim() }), { name: ' x' }],
    ['a default', z.object({ on: z.boolean().default(true) }), {}],
    ['a refinement of the whole', z.object({ a: text(5) }).refine(() => true), { a: 'x' }],
    ['formats', z.object({ email: z.email() }), { email: 'ada@example.com' }],
    ['a malformed id', z.object({ id: z.guid() }), { id: '01923f7e-0000-7000-8000-00000000000' }],
    ['an id in a list', z.object({ id: z.guid() }), { id: ['01923f7e-0000-7000-8000-000000000000'] }],
    ['a field that is set to undefined', z.object({ a: text(5).optional() }), { a: undefined }],
  ])('declines %s', (_, schema, value) => {
    expect(compileFastValidator(schema)(value)).toBe(declined)
  })
})
