import type { z } from 'zod'
import { toJsonSchema } from '../src/core/openapi.ts'

type Json = Record<string, unknown>

/** The value itself if it has no fields but declared ones; otherwise a copy of those. */
type Pick = (value: never) => unknown

/**
 * Writes replies as their contract declares them: a field that is not declared cannot leave, and one that is missing is a bug.
 * The writing is left to JSON.stringify, which takes a third of the time of a serializer that writes field by field. Values are
 * checked rather than copied: an object made field by field in a loop is a dictionary to V8, and takes several times as long to
 * write.
 */
export function replyWriter(reply: z.ZodType): (value: unknown) => string {
  const { $defs = {}, ...schema } = toJsonSchema(reply, 'output')
  const pick = pickerOf(schema, $defs as Record<string, Json>) as (value: unknown) => unknown
  return (value) => JSON.stringify(pick(value))
}

const asIs: Pick = (value) => value

function pickerOf(schema: Json, parts: Record<string, Json>): Pick {
  if (typeof schema.$ref === 'string') {
    // A recursive schema cannot be expanded; its values were validated by the same schema when stored.
    if (holdsItself(schema.$ref, parts)) return asIs
    return pickerOf(partOf(schema.$ref, parts), parts)
  }
  if (Array.isArray(schema.anyOf)) {
    const shapes = (schema.anyOf as Json[]).filter((one) => one.type !== 'null')
    if (shapes.length !== 1) throw new Error(`A reply may be one shape or null, not one of ${shapes.length}`)
    return orNull(pickerOf(shapes[0]!, parts))
  }
  if (schema.items !== undefined) {
    const item = pickerOf(schema.items as Json, parts)
    if (item === asIs) return asIs
    return (values: never[]) =>
      values.every((value) => item(value) === value) ? values : values.map((value) => item(value))
  }
  return schema.properties === undefined ? asIs : objectPicker(schema, parts)
}

const partOf = (ref: string, parts: Record<string, Json>): Json => parts[ref.slice('#/$defs/'.length)]!

function holdsItself(ref: string, parts: Record<string, Json>): boolean {
  const below = new Set<string>()
  const follow = (from: string): void => {
    for (const [, to] of JSON.stringify(partOf(from, parts)).matchAll(/"\$ref":"([^"]+)"/g)) {
      if (below.has(to!)) continue
      below.add(to!)
      follow(to!)
    }
  }
  follow(ref)
  return below.has(ref)
}

const orNull = (pick: Pick): Pick => (pick === asIs ? asIs : (value) => (value === null ? null : pick(value)))

function objectPicker(schema: Json, parts: Record<string, Json>): Pick {
  const required = new Set(schema.required as string[] | undefined)
  const fields = Object.entries(schema.properties as Record<string, Json>).map(([name, inner]) => ({
    name,
    pick: pickerOf(inner, parts) as (value: unknown) => unknown,
    isRequired: required.has(name),
  }))
  const declared = new Map(fields.map((field) => [field.name, field]))
  const copy = (value: Json): Json => {
    const picked: Json = {}
    for (const { name, pick, isRequired } of fields) {
      const field = value[name]
      if (field !== undefined) picked[name] = pick(field)
      else if (isRequired) throw new Error(`The reply lacks ${name}`)
    }
    return picked
  }
  return (value: Json) => {
    let missing = required.size
    for (const name in value) {
      const field = value[name]
      // It is not written.
      if (field === undefined) continue
      const known = declared.get(name)
      if (known === undefined || known.pick(field) !== field) return copy(value)
      if (known.isRequired) missing -= 1
    }
    return missing === 0 ? value : copy(value)
  }
}
