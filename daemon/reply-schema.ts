import type { z } from 'zod'
import { toJsonSchema } from '../src/core/openapi.ts'

type Json = Record<string, unknown>

/**
 * The schema of a reply as the serializer wants it: named parts in place, and "or null" as a flag, so that it
 * never has to try one shape after the other. Fields that are not declared are left out of the reply.
 */
export function replySchema(reply: z.ZodType): Json {
  const { $defs = {}, ...schema } = toJsonSchema(reply, 'output')
  return inPlace(schema, $defs as Record<string, Json>) as Json
}

function inPlace(value: unknown, parts: Record<string, Json>): unknown {
  if (Array.isArray(value)) return value.map((item) => inPlace(item, parts))
  if (value === null || typeof value !== 'object') return value
  const schema = value as Json
  if (typeof schema.$ref === 'string') return inPlace(parts[schema.$ref.slice('#/$defs/'.length)], parts)
  const { anyOf, ...rest } = Object.fromEntries(
    Object.entries(schema).map(([key, item]) => [key, inPlace(item, parts)]),
  )
  if (!Array.isArray(anyOf)) return rest
  const shapes = (anyOf as Json[]).filter((one) => one.type !== 'null')
  if (shapes.length !== 1) throw new Error(`A reply may be one shape or null, not one of ${shapes.length}`)
  return { ...shapes[0], ...rest, nullable: shapes.length < anyOf.length }
}
