import { randomBytes } from 'node:crypto'
import type { z } from 'zod'
import { pathOf, type RawInput } from '../../src/core/client.ts'
import type { Endpoint } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import type { Resource } from '../../src/core/schema.ts'
import { fieldsOf, idsOf, optional, type Part } from './fields.ts'
import type { Wire } from './wire.ts'

/** A record of every kind. A new kind of record is added here and in fixture.ts, or nothing compiles. */
export type Records = Record<Resource, string>

/**
 * IDs that a user of an organization can set to anything, because they are ignored: what is created
 * belongs to the organization of the user.
 */
export const unread: readonly string[] = ['filters.create body.orgId']

/** IDs of records that do not exist. */
export const unknownRecords = (): Records => ({
  partner: newId(),
  organization: newId(),
  site: newId(),
  enrollment_key: newId(),
  api_key: newId(),
  device: newId(),
  device_group: newId(),
  device_command: newId(),
  filter: newId(),
  agent: randomBytes(32).toString('hex'),
  audit_log: newId(),
  user: newId(),
  role: newId(),
  script: newId(),
  alert: newId(),
  webhook: newId(),
  webhook_delivery: newId(),
  sso_provider: newId(),
  sso_identity: newId(),
  trust_policy: newId(),
  agent_rollout: newId(),
  configuration_apply: newId(),
})

export type Input = { params: Plain; query: Plain; body: unknown }
type Plain = Record<string, unknown>

/**
 * A call of valid shape: the example as body, IDs filled in, and all required fields.
 * `all` includes the optional fields too.
 */
export function callOf(entry: Endpoint, records: Records, { all = false }: { all?: boolean } = {}): Input {
  const input: Input = {
    params: valuesOf(entry.params, true),
    query: valuesOf(entry.query, all),
    body: structuredClone(entry.example),
  }
  for (const { part, path, resource, schema } of idsOf(entry)) {
    if (part === 'params' || all || !optional(schema)) put(input, part, path, records[resource])
  }
  return input
}

/** The same call with one ID replaced. */
export function naming(input: Input, part: Part, path: string[], id: string): Input {
  const named = structuredClone(input)
  put(named, part, path, id)
  return named
}

/** Sets a field; `undefined` removes it. Missing objects are created, lists get one item. */
export function put(input: Input, part: Part, path: string[], value: unknown): void {
  if (path.length === 0) {
    Object.assign(input, { [part]: value })
    return
  }
  const root = (input[part] ?? {}) as Plain
  Object.assign(input, { [part]: root })
  let at = root
  path.slice(0, -1).forEach((step, i) => {
    if (at[step] === null || typeof at[step] !== 'object') at[step] = path[i + 1] === '0' ? [] : {}
    at = at[step] as Plain
  })
  const key = path.at(-1)!
  if (value === undefined) delete at[key]
  else Object.defineProperty(at, key, { value, enumerable: true, configurable: true, writable: true })
}

/**
 * Fields that are omitted because others replace them: a cursor, which only the list can give, is replaced by
 * a page, and an older size by an entry to prove.
 */
const instead: readonly string[] = ['cursor', 'since']

function valuesOf(schema: z.ZodObject | undefined, all: boolean): Plain {
  const fields = fieldsOf(schema).filter(({ path }) => path.length === 1 && !instead.includes(path[0]!))
  return Object.fromEntries(
    fields
      .filter(({ schema: one, resource }) => resource === undefined && (all || !optional(one)))
      .map(({ path, schema: one }) => [path[0]!, plausible(one)]),
  )
}

const candidates = [
  // Nothing random contains it: a search finds as much in every run.
  'device',
  '1',
  '2',
  'a',
  'true',
  'false',
  'error',
  'id',
  '2026-03-01T12:00:00Z',
  'a@example.com',
  'https://example.com',
  'c'.repeat(43),
  newId(),
  '1.0.0',
  `${newId()}:1`,
]

/** Texts that are valid for a query or path parameter of this schema. */
export function valuesFor(schema: z.ZodType): string[] {
  const { enum: listed } = schema.toJSONSchema({ io: 'input', unrepresentable: 'any' })
  const found = [...(listed ?? []), ...candidates]
    .map(String)
    .filter((text) => schema.safeParse(text).success)
  if (found.length === 0) throw new Error('no value is known for a parameter: add one to the candidates')
  return found
}

const plausible = (schema: z.ZodType): string => valuesFor(schema)[0]!

/** The call as an HTTP request with a JSON body. */
export function toWire(entry: Endpoint, input: Input, token?: string): Wire {
  return {
    method: entry.method,
    path: `/api/v1${pathOf(entry, input as RawInput)}`,
    ...(token !== undefined && { token }),
    ...(input.body !== undefined && { body: JSON.stringify(input.body) }),
  }
}
