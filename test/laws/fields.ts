import { z } from 'zod'
import type { Contract, Endpoint } from '../../src/core/endpoint.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { isSecret, type Resource, unwrap } from '../../src/core/schema.ts'

/** A field somewhere in a schema. `path` runs through objects by name and through lists by `0`. */
export type Field = {
  path: string[]
  /** As it is declared, with optional, default and the like around it. */
  schema: z.ZodType
  /** The kind of record that its id refers to. */
  resource: Resource | undefined
  secret: boolean
  /** Nothing lies below it. */
  leaf: boolean
}

const parts = ['params', 'query', 'body'] as const
export type Part = (typeof parts)[number]

/** Every field below a schema, outermost first. A schema that holds itself is followed once. */
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

/** What lies in a secret is secret. */
function fieldOf(path: string[], schema: z.ZodType, within: boolean): Field {
  const inner = resolved(unwrap(schema))
  const leaf = !(inner instanceof z.ZodObject || inner instanceof z.ZodArray || inner instanceof z.ZodUnion)
  return { path, schema, resource: resourceOf(schema), secret: within || isSecret(schema), leaf }
}

const resolved = (schema: z.ZodType): z.ZodType =>
  schema instanceof z.ZodLazy ? resolved(unwrap(schema.unwrap() as z.ZodType)) : schema

/** What `idOf` noted, at whichever layer. */
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

/** The fields a caller may say, by part. */
export const inputsOf = (entry: Endpoint): (Field & { part: Part })[] =>
  parts.flatMap((part) => fieldsOf(entry[part]).map((field) => ({ ...field, part })))

/** The ids among them. */
export const idsOf = (entry: Endpoint) =>
  inputsOf(entry).flatMap(({ resource, ...field }) => (resource ? [{ ...field, resource }] : []))

export const last = (field: { path: string[] }): string => field.path.findLast((step) => step !== '0') ?? ''

export type Entry = { name: string; entry: Endpoint }

/** What programs call. What browsers meet on their way needs an identity provider: test/sso/sign-in. */
export const called = (contract: Contract): Entry[] =>
  entriesOf(contract).filter(({ entry }) => !entry.redirects)

export const mutating = (contract: Contract): Entry[] =>
  called(contract).filter(({ entry }) => entry.method !== 'GET')

/** What a call that works answers: where the files of releases are is told, and they are not here. */
export const statusOf = (entry: Endpoint): number => (entry.bytes ? 302 : (entry.status ?? 200))

/** Whether a caller may leave the field out. */
export const optional = (schema: z.ZodType): boolean => schema.safeParse(undefined).success
