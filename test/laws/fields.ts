import { z } from 'zod'
import type { Contract, Endpoint } from '../../src/core/endpoint.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { isSecret, type Resource, unwrap } from '../../src/core/schema.ts'

/** A field somewhere in a schema. `path` runs through objects by name and through lists by `0`. */
export type Field = {
  path: string[]
  /** The declared schema, including optional, default and the like. */
  schema: z.ZodType
  /** The kind of record that the ID refers to. */
  resource: Resource | undefined
  secret: boolean
  /** Whether it has no fields below it. */
  leaf: boolean
}

const parts = ['params', 'query', 'body'] as const
export type Part = (typeof parts)[number]

/** All fields below a schema, outermost first. A recursive schema is followed once. */
export function fieldsOf(schema: z.ZodType | undefined): Field[] {
  return schema ? fieldsBelow(schema, { path: [], secret: false, seen: [] }) : []
}

type Way = { path: string[]; secret: boolean; seen: z.ZodType[] }

function fieldsBelow(schema: z.ZodType, way: Way): Field[] {
  const inner = resolved(unwrap(schema))
  if (way.seen.includes(inner)) return []
  const seen = [...way.seen, inner]
  const at = (key: string, one: z.ZodType): Field[] => {
    const field = fieldOf([...way.path, key], one, way.secret)
    return [field, ...fieldsBelow(one, { path: field.path, secret: field.secret, seen })]
  }
  if (inner instanceof z.ZodObject) {
    const shape = Object.entries(inner.shape as Record<string, z.ZodType>)
    return shape.flatMap(([key, one]) => at(key, one))
  }
  if (inner instanceof z.ZodArray) return at('0', inner.element as z.ZodType)
  if (inner instanceof z.ZodUnion) {
    return inner.options.flatMap((one) => fieldsBelow(one as z.ZodType, { ...way, seen }))
  }
  return []
}

/** Fields below a secret are secret too. */
function fieldOf(path: string[], schema: z.ZodType, within: boolean): Field {
  const inner = resolved(unwrap(schema))
  const leaf = !(inner instanceof z.ZodObject || inner instanceof z.ZodArray || inner instanceof z.ZodUnion)
  return { path, schema, resource: resourceOf(schema), secret: within || isSecret(schema), leaf }
}

const resolved = (schema: z.ZodType): z.ZodType =>
  schema instanceof z.ZodLazy ? resolved(unwrap(schema.unwrap() as z.ZodType)) : schema

/** The resource set by `idOf`, at any layer. */
function resourceOf(schema: z.ZodType): Resource | undefined {
  for (let s: z.ZodType | undefined = schema; s; s = below(s)) {
    const noted = s.meta()?.resource
    if (noted !== undefined) return noted as Resource
  }
  return undefined
}

function below(schema: z.ZodType): z.ZodType | undefined {
  if (schema instanceof z.ZodPipe) return schema.in as z.ZodType
  if (schema instanceof z.ZodArray || !('unwrap' in schema)) return undefined
  return (schema.unwrap as () => z.ZodType)()
}

/** The input fields of an endpoint, by part. */
export const inputsOf = (entry: Endpoint): (Field & { part: Part })[] =>
  parts.flatMap((part) => fieldsOf(entry[part]).map((field) => ({ ...field, part })))

/** The IDs among them. */
export const idsOf = (entry: Endpoint) =>
  inputsOf(entry).flatMap(({ resource, ...field }) => (resource ? [{ ...field, resource }] : []))

export const last = (field: { path: string[] }): string => field.path.findLast((step) => step !== '0') ?? ''

export type Entry = { name: string; entry: Endpoint }

/** Endpoints called by programs. Those of browsers need an identity provider: test/sso/sign-in. */
export const called = (contract: Contract): Entry[] =>
  entriesOf(contract).filter(({ entry }) => !entry.redirects)

export const mutating = (contract: Contract): Entry[] =>
  called(contract).filter(({ entry }) => entry.method !== 'GET')

/** The status of a successful call: release files are not served here, but redirected to. */
export const statusOf = (entry: Endpoint): number => (entry.bytes ? 302 : (entry.status ?? 200))

/** Whether a caller may omit the field. */
export const optional = (schema: z.ZodType): boolean => schema.safeParse(undefined).success
