import { z } from 'zod'
import { isJsonObject } from '../core/json.ts'
import { unwrap } from '../core/schema.ts'
import { didYouMean } from '../core/suggest.ts'
import { escapeToOneLine } from '../core/terminal.ts'
import { usageError } from './exit-codes.ts'
import { shapeOf } from './fields.ts'

/** A path in a record: `name`, or `user.email`. */
export type Column = string

/** All plain values of a record, in the order of its schema: the default columns of CSV. */
export function schemaColumns(schema: z.ZodType, prefix = ''): Column[] {
  return Object.entries(shapeOf(schema) ?? {}).flatMap(([key, one]) => {
    const path = prefix + key
    return unwrap(one) instanceof z.ZodObject ? schemaColumns(one, `${path}.`) : [path]
  })
}

/** The same for a record without a schema. */
export function recordColumns(record: unknown, prefix = ''): Column[] {
  return Object.entries(record ?? {}).flatMap(([key, value]) =>
    isJsonObject(value) ? recordColumns(value, `${prefix}${key}.`) : [prefix + key],
  )
}

export const shapeOrEmpty = (schema: z.ZodType | undefined): Record<string, z.ZodType> =>
  (schema && shapeOf(schema)) ?? {}

/** The schema of one row of a list reply, and the key the rows are under. */
export function listShape(reply: z.ZodType): { key: string; row: z.ZodType } | undefined {
  for (const [key, one] of Object.entries(shapeOf(reply) ?? {})) {
    const inner = unwrap(one)
    if (['data', 'entries'].includes(key) && inner instanceof z.ZodArray)
      return { key, row: inner.element as z.ZodType }
  }
  return undefined
}

/** The schema of the record in a reply that has it under `data`. */
export function recordSchema(reply: z.ZodType): z.ZodType | undefined {
  const inner = shapeOf(reply)?.data
  return inner && shapeOf(inner) && inner
}

/** `--columns a,b` checked against the record; fields of a free-form object cannot be checked. */
export const parseColumns = (text: string, schema: z.ZodType): Column[] =>
  pickColumns(text, schemaColumns(schema))

/** The requested columns, validated, else the default ones. */
export const selectColumns = (
  output: { columns: string | undefined },
  known: Column[],
  usual = known,
): Column[] => (output.columns === undefined ? usual : pickColumns(output.columns, known))

function pickColumns(text: string, known: Column[]): Column[] {
  const wanted = text
    .split(',')
    .map((name) => name.trim())
    .filter(Boolean)
  if (wanted.length === 0) throw usageError('--columns names no column', `columns: ${known.join(', ')}`)
  return wanted.map((name) => {
    const match = known.find((leaf) => leaf.toLowerCase() === name.toLowerCase())
    if (match) return match
    if (known.some((leaf) => name.startsWith(`${leaf}.`) || leaf.startsWith(`${name}.`))) return name
    // The names may be those of a reply.
    const shown = known.map(escapeToOneLine)
    throw usageError(
      `There is no column "${name}"`,
      didYouMean(name, shown) ?? `columns: ${shown.join(', ')}`,
    )
  })
}

export function valueAt(record: unknown, column: Column): unknown {
  let value: unknown = record
  for (const key of column.split('.')) {
    value = value !== null && typeof value === 'object' ? (value as Record<string, unknown>)[key] : undefined
  }
  return value
}

/** `maxUsage` and `user.email` as headings. */
export const columnTitle = (column: Column): string =>
  column
    .replace(/[A-Z]+/g, (capitals) => ` ${capitals}`)
    .replaceAll('.', ' ')
    .toUpperCase()

/** A value as text; lists and objects as JSON. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return ''
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
