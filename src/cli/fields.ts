import { z } from 'zod'
import type { Endpoint } from '../core/endpoint.ts'
import { isSecret, type Resource, unwrap } from '../core/schema.ts'

type RequestPart = 'params' | 'query' | 'body'

/** `time`: a time, or a duration before or after now. `pair`: a permission such as devices:read. `file`: a long text, read from the named file. */
type FieldKind = 'text' | 'file' | 'number' | 'boolean' | 'choice' | 'pair' | 'time' | 'json'

/** A field of a request, as the command line presents it. */
export type Field = {
  part: RequestPart
  key: string
  /** The path of objects around it: `settings`, `contact`. */
  within?: string[]
  /** Its name as a flag: `maxUsage` is `max-usage`, `orgId` is `org`. */
  flag: string
  kind: FieldKind
  choices?: string[]
  /** A list: the flag may be repeated. */
  many: boolean
  /** Sent as text, such as true in a query string. */
  required: boolean
  nullable: boolean
  secret: boolean
  /** The kind of record that its id refers to. */
  resource?: Resource
  /** It may refer to a deleted record. */
  deleted?: true
  description: string
  /** A time to come: a duration leads from now on, not back. */
  future?: true
  /** How many seconds the number stands for, where it is a length of time. */
  unitSeconds?: number
  /** The spelling of the flag before the present one. */
  formerFlag?: string
}

const kebab = (text: string): string => text.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

const flagOf = (key: string, resource: Resource | undefined): string =>
  kebab(resource && key.length > 2 && key.endsWith('Id') ? key.slice(0, -2) : key)

export function fieldsOf(entry: Endpoint): Field[] {
  return (['params', 'query', 'body'] as const).flatMap((part) => {
    const schema = entry[part]
    const shape = schema && shapeOf(schema)
    return shape ? Object.entries(shape).flatMap(([key, one]) => fieldOf(part, key, one)) : []
  })
}

/** The fields of an object schema, inside its wrappers. */
export function shapeOf(schema: z.ZodType): Record<string, z.ZodType> | undefined {
  const inner = unwrap(schema)
  return inner instanceof z.ZodObject ? (inner.shape as Record<string, z.ZodType>) : undefined
}

function fieldOf(part: RequestPart, key: string, schema: z.ZodType): Field[] {
  const meta = metaOf(schema)
  if (meta.hidden || meta.flag === false) return []
  const outer = unwrap(schema)
  const many = outer instanceof z.ZodArray
  const inner = many ? unwrap(outer.element as z.ZodType) : outer
  const resource = (many ? metaOf(inner) : meta).resource as Resource | undefined
  const choices = inner instanceof z.ZodEnum ? inner.options.map(String) : undefined
  const isFlag = choices?.length === 2 && choices.includes('true') && choices.includes('false')
  const isTime = meta.format === 'date-time'
  const isFuture = isTime && (meta.future === true || (part === 'body' && meta.past !== true))
  const kind = meta.file ? 'file' : isTime ? 'time' : isFlag ? 'boolean' : choices ? 'choice' : kindOf(inner)
  const unitSeconds = kind === 'number' ? unitSecondsOf(key) : undefined
  const spread = meta.spread === true ? spreadOf(part, [key], inner, '') : []
  return [
    {
      part,
      key,
      // The flag of a list is singular and repeated: `scopes` is `--scope`.
      flag: typeof meta.flag === 'string' ? meta.flag : flagOf(key, resource),
      kind,
      many,
      required: !schema.safeParse(undefined).success,
      nullable: schema.safeParse(null).success,
      secret: isSecret(schema),
      description: String(meta.description ?? ''),
      ...(choices && !isFlag && { choices }),
      ...(resource && { resource }),
      ...(meta.deleted === true && { deleted: true as const }),
      ...(isFuture && { future: true as const }),
      ...(unitSeconds !== undefined && { unitSeconds }),
      ...(typeof meta.formerFlag === 'string' && { formerFlag: meta.formerFlag }),
    },
    ...spread,
  ]
}

/** The plain values in an object, as separate fields: `settings.contact.email` is `--contact-email`. */
function spreadOf(part: RequestPart, within: string[], schema: z.ZodType, prefix: string): Field[] {
  return Object.entries(shapeOf(schema) ?? {}).flatMap(([key, one]) => {
    const [field] = fieldOf(part, key, one)
    if (!field || field.many) return []
    const flag = prefix + field.flag
    if (field.kind !== 'json') return [{ ...field, flag, within }]
    // Another level would give too many flags, such as the hours of each day.
    return within.length < 2 ? spreadOf(part, [...within, key], one, `${flag}-`) : []
  })
}

/** `overlapSeconds` is a length of time in seconds. */
function unitSecondsOf(key: string): number | undefined {
  const [unit] = /(seconds|minutes|hours|days)$/i.exec(key) ?? []
  return unit === undefined
    ? undefined
    : { seconds: 1, minutes: 60, hours: 3600, days: 86_400 }[unit.toLowerCase()]
}

function kindOf(schema: z.ZodType): FieldKind {
  if (schema instanceof z.ZodNumber) return 'number'
  if (schema instanceof z.ZodBoolean) return 'boolean'
  if (schema instanceof z.ZodObject && Object.keys(schema.shape).join() === 'resource,action') return 'pair'
  if (schema instanceof z.ZodObject || schema instanceof z.ZodRecord || schema instanceof z.ZodUnion)
    return 'json'
  return 'text'
}

/** The kind of record that an id refers to. */
export const resourceOf = (schema: z.ZodType | undefined): Resource | undefined =>
  schema && (metaOf(schema).resource as Resource | undefined)

/** The metadata of all wrappers of a schema; the outermost wins. */
function metaOf(schema: z.ZodType): Record<string, unknown> {
  const layers: Record<string, unknown>[] = []
  for (let s: z.ZodType | undefined = schema; s; s = below(s)) layers.push(s.meta() ?? {})
  return Object.assign({}, ...layers.reverse()) as Record<string, unknown>
}

function below(schema: z.ZodType): z.ZodType | undefined {
  if ('unwrap' in schema && typeof schema.unwrap === 'function' && !(schema instanceof z.ZodArray)) {
    return schema.unwrap() as z.ZodType
  }
  return schema instanceof z.ZodPipe ? (schema.in as z.ZodType) : undefined
}
