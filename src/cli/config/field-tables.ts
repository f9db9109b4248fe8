import { type FileField, type Kind, kinds, sections } from '../../configuration/contract.ts'
import { toJsonSchema } from '../../core/openapi.ts'
import { safeParse, unwrap } from '../../core/schema.ts'

type Json = { [key: string]: unknown }

/** What begins and ends the part of svc-config(5) that is written here. */
const [heading, next] = ['\n## FIELDS\n', '\n## EXIT STATUS\n']

const introduction = `
Of an object that is new, what is marked as required has to be there; of one that exists, its name is enough. Each may have \`renamedFrom\`, and \`org\` where
it may belong to an organization. Texts are limited in characters;
\`svc config schema\` has all words of a long list.`

/** The page with the fields of each section as the contract has them. */
export function withFieldTables(page: string): string {
  const [begin, end] = [page.indexOf(heading), page.indexOf(next)]
  if (begin < 0 || end < begin) throw new Error('svc-config(5) has no FIELDS before its EXIT STATUS')
  const tables = sections.map((section) => fieldTable(kinds[section]))
  return [page.slice(0, begin), heading, introduction, ...tables, '\n', page.slice(end)].join('')
}

function fieldTable(kind: Kind): string {
  const { properties, $defs = {} } = toJsonSchema(kind.schema, 'input') as { properties: Json; $defs?: Json }
  const rows = kind.fields.map((field) => {
    const { name, description = '' } = field
    const value = [valueText(field, properties[name] as Json, $defs), ...conditionsOf(kind, field)].join('; ')
    return `| ${[name, value, description].map((text) => text.replaceAll('|', '\\|')).join(' | ')} |\n`
  })
  return `\n\n### Fields of ${kind.section}\n\n| Field | Value | What it is |\n|---|---|---|\n${rows.join('')}`.trimEnd()
}

/** When a field may be, or has to be, in a file. */
function conditionsOf(kind: Kind, { name, field, isMade, isChanged, guard }: FileField): string[] {
  const made = (unwrap(kind.create.body!) as unknown as { shape: Json }).shape[field] as Parameters<
    typeof safeParse
  >[0]
  const isRequired = name in (kind.needed ?? {}) || (isMade && !safeParse(made, undefined).success)
  return [
    ...(isRequired ? ['required'] : []),
    ...(guard ? ['a secret, or holds one'] : []),
    ...(kind.merged.includes(name) ? ['merged into what there is'] : []),
    ...(kind.initial?.includes(field) ? ['for what is new'] : []),
    ...(isChanged || kind.initial?.includes(field) ? [] : ['cannot be changed']),
  ]
}

function valueText({ refersTo, isList, isNullable }: FileField, schema: Json, definitions: Json): string {
  if (refersTo === undefined) return textOf(schema, definitions)
  const named = isList ? `names of ${refersTo}` : `name of one of ${refersTo}`
  return isNullable ? `${named}, or null` : named
}

/** A schema in words. */
function textOf(schema: Json, definitions: Json): string {
  const { $ref, enum: words, type, items, properties, format, maximum, minimum, maxLength } = schema
  if (typeof $ref === 'string') return textOf(definitions[$ref.replace('#/$defs/', '')] as Json, definitions)
  const choices = (schema.anyOf ?? schema.oneOf) as Json[] | undefined
  if (choices) return [...new Set(choices.map((one) => textOf(one, definitions)))].join(', or ')
  if (words) return oneOf((words as unknown[]).map(String))
  if ('const' in schema) return JSON.stringify(schema.const)
  if (type === 'string') return format === undefined ? sized('text', maxLength) : `text (${format})`
  if (type === 'integer' || type === 'number') return ranged(minimum as number, maximum as number)
  if (type === 'boolean') return 'true or false'
  if (type === 'array') return `list of ${textOf((items ?? {}) as Json, definitions)}`
  if (type === 'object')
    return properties ? `object with ${Object.keys(properties as Json).join(', ')}` : 'object'
  return type === 'null' ? 'null' : 'any value'
}

/** Of a long list the schema for editors has all. */
const maxWords = 10

function oneOf(all: readonly string[]): string {
  if (all.length > maxWords) return `one of ${all.length} words, such as ${all[0]}`
  return all.length === 1 ? all[0]! : `${all.slice(0, -1).join(', ')} or ${all.at(-1)}`
}

const sized = (what: string, max: unknown): string => (max === undefined ? what : `${what}, at most ${max}`)

/** A bound of the type alone says nothing. */
function ranged(min: number | undefined, max: number | undefined): string {
  const isBound = (one: number | undefined) => one !== undefined && Math.abs(one) < Number.MAX_SAFE_INTEGER
  if (isBound(min) && isBound(max)) return `number from ${min} to ${max}`
  if (isBound(max)) return `number up to ${max}`
  return isBound(min) ? `number from ${min}` : 'number'
}
