import { z } from 'zod'
import { idBeginning } from './ids.ts'
import { toStorable } from './text.ts'

/** The kinds of record that an id in a path, query or body can name. Isolation tests are derived from it. */
export type Resource =
  | 'partner'
  | 'organization'
  | 'site'
  | 'enrollment_key'
  | 'api_key'
  | 'device'
  | 'device_group'
  | 'device_command'
  | 'filter'
  | 'agent'
  | 'audit_log'
  | 'user'
  | 'role'
  | 'script'
  | 'alert'
  | 'webhook'
  | 'webhook_delivery'
  | 'sso_provider'
  | 'sso_identity'
  | 'trust_policy'
  | 'agent_rollout'
  | 'configuration_apply'

/** What audit entries are about: also records that are identified by name and belong to no tenant. */
export type AuditedResource = Resource | 'agent_version' | 'dead_letter' | 'configuration'

/** An id of a record of that kind, in upper or lower case; the CLI accepts its slug or name as well. */
export const idOf = (resource: Resource) =>
  z
    .guid({ error: 'must be a UUID' })
    .overwrite((id) => id.toLowerCase())
    .meta({ format: 'uuid', resource })

/** Query of a list: only records whose id begins so. It is not a flag: the CLI uses it to find the record of a shortened id. */
export const idPrefix = z
  .string()
  .overwrite((start) => start.toLowerCase())
  .regex(idBeginning, 'must be the first 8 digits of an id, or more')
  .optional()
  .describe('The first 8 digits of an id, or more')
  .meta({ flag: false })

/**
 * Like `schema.safeParse`, for untrusted input: zod compares the `length` of any value to a limit and throws
 * when that length is an object with its own `toString`, which JSON can express.
 */
export function safeParse<S extends z.ZodType>(schema: S, value: unknown): z.ZodSafeParseResult<z.output<S>> {
  try {
    return schema.safeParse(value)
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const comparable = JSON.stringify(value, (key, one) => (key === 'toString' ? undefined : one))
    const { error: faults } = schema.safeParse(JSON.parse(comparable))
    const custom = { code: 'custom' as const, path: [], message: 'has a field named toString', input: value }
    return { success: false, error: (faults ?? new z.ZodError([custom])) as z.ZodError<z.output<S>> }
  }
}

const isoTime = 'must be an ISO 8601 date and time, such as 2026-01-31T12:00:00Z'
const dateAlone = /^\d{4}-\d\d-\d\d$/

/**
 * ISO 8601 with any offset, stored as UTC text with milliseconds; a date alone means this time of that day in
 * UTC.
 */
const instantAt = (time: string) =>
  z
    .string({ error: isoTime })
    .overwrite((text) => (dateAlone.test(text) ? `${text}T${time}Z` : text))
    .check(z.iso.datetime({ offset: true, error: isoTime, abort: true }))
    .overwrite((text) => {
      // This also runs on text that the check before it has refused.
      const at = Date.parse(text)
      return Number.isNaN(at) ? text : new Date(at).toISOString()
    })
    // An offset can lead outside of the years with four digits, and other years do not sort as text.
    .refine((text) => !/^[+-]/.test(text), { error: isoTime })
    .meta({ format: 'date-time' })

/** A moment; a date alone means the start of that day. */
export const instant = instantAt('00:00:00.000')

/** The end of a period; a date alone means the end of that day. */
export const endInstant = instantAt('23:59:59.999')

const decimal = /^[+-]?\d+$/

/** A number in a query string: decimal digits and nothing else. */
export const queryNumber = <S extends z.ZodNumber>(number: S) =>
  z.preprocess((said) => (typeof said === 'string' && decimal.test(said) ? Number(said) : said), number)

/** Whether a text can be stored, hashed and returned unchanged: RFC 8785 and UTF-8 have no lone surrogates. */
const isUnicode = (value: string): boolean => value.isWellFormed()
const hasNoNul = (value: string): boolean => !value.includes('\u0000')

/** Whether both databases can store the text and return it unchanged. */
export const isStorable = (value: string): boolean => hasNoNul(value) && isUnicode(value)

const unicode = 'must be Unicode text without lone surrogates'
const noNul = 'must not contain a NUL character'

/** Text from a person: no NUL, which Postgres cannot store. */
export const text = (max: number, min = 0) => limited(z.string(), max, min)

/** The same without surrounding white space. */
export const trimmed = (max: number, min = 0) => limited(z.string().trim(), max, min)

function limited(string: z.ZodString, max: number, min: number) {
  const base = string
    .max(max, `must be at most ${max} characters`)
    .refine(hasNoNul, noNul)
    .refine(isUnicode, unicode)
  return min > 0
    ? base.min(min, min === 1 ? 'must not be empty' : `must be at least ${min} characters`)
    : base
}

/** Text that a machine reports: characters that cannot be stored are replaced, not refused. */
export const reportedText = (max: number, min = 0) => limited(z.string().overwrite(toStorable), max, min)

const cutMark = '… [cut]'

/** The same of any length: longer text is cut between two characters and marked. */
export const truncatedText = (max: number) =>
  z
    .string()
    .overwrite(toStorable)
    .overwrite((whole) => {
      if (whole.length <= max) return whole
      const end = max - cutMark.length
      const isSplit = /[\ud800-\udbff]/.test(whole[end - 1]!)
      return whole.slice(0, isSplit ? end - 1 : end) + cutMark
    })

/** A JSON object of telemetry with any content: of a larger one only the beginning is stored, as text. */
export const truncatedObject = (size: number) =>
  z.record(z.string(), z.unknown()).overwrite((value) => {
    if (!isWithin(value, deepest)) return { cut: true }
    const clean = cleaned(value) as Record<string, unknown>
    const json = JSON.stringify(clean)
    return json.length <= size ? clean : { cut: true, beginning: json.slice(0, size / 4).toWellFormed() }
  })

function cleaned(value: unknown): unknown {
  if (typeof value === 'string') return toStorable(value)
  if (Array.isArray(value)) return value.map(cleaned)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [toStorable(key), cleaned(item)]))
}

/** A list of values of an enum, separated by commas: `warn,error`. */
export function listOfEnum<const W extends string>(words: readonly W[]) {
  const isOne = (name: string): name is W => (words as readonly string[]).includes(name)
  return text(100)
    .transform((list) => list.split(',').map((name) => name.trim()))
    .refine((names) => names.every(isOne), `must be some of ${words.join(', ')}, with commas between them`)
    .transform((names) => names.filter(isOne))
}

export const slug = text(100, 1).regex(
  /^[a-z0-9]+(-[a-z0-9]+)*$/,
  'must be lower-case letters and digits, with single hyphens between them',
)

export const email = text(255, 3)
  .regex(/^[^\s@]+@[^\s@]+$/, 'must be an e-mail address')
  .meta({ format: 'email' })

/** Time zones that were asked for before, in lower case: the system knows some 700 names. A format takes 30 KB and 80 µs to make. */
const timezones = new Set<string>()

function isTimezone(name: string): boolean {
  // Of other letters some are those of a zone in lower case, such as the sign of the kelvin.
  if (!/^[A-Za-z][!-~]*$/.test(name)) return false
  const folded = name.toLowerCase()
  if (timezones.has(folded)) return true
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
  } catch {
    // A RangeError: there is no such time zone.
    return false
  }
  timezones.add(folded)
  return true
}

export const timezone = text(50, 1).refine(isTimezone, 'must be an IANA time zone, such as Europe/Paris')

const deepest = 32

export const tooDeep = { error: `must not be nested more than ${deepest} levels deep`, abort: true }

/** Most characters of JSON in a free object. */
export const maxObjectSize = 16_384

/** A JSON object with any content besides the fields of its schema, 16 KiB by default. */
export const boundedObject = <S extends z.ZodType<Record<string, unknown>>>(
  schema: S,
  size = maxObjectSize,
): S =>
  schema
    // First, because all later code descends into it recursively.
    .refine((value) => isWithin(value, deepest), tooDeep)
    .refine((value) => JSON.stringify(value).length <= size, `must be at most ${size / 1024} KiB of JSON`)
    .refine((value) => everyText(value, hasNoNul), noNul)
    .refine((value) => everyText(value, isUnicode), unicode)

export const anyObject = boundedObject(z.record(z.string(), z.unknown()))

/** Not nested too deep for recursive code. */
export const isShallow = (value: unknown): boolean => isWithin(value, deepest)

/** Any JSON that is not nested too deep for recursive code. */
export const anyJson = z.unknown().refine(isShallow, tooDeep.error)

function isWithin(value: unknown, levels: number): boolean {
  if (value === null || typeof value !== 'object') return true
  return levels > 0 && Object.values(value).every((item) => isWithin(item, levels - 1))
}

/** Field names are checked as well. */
function everyText(value: unknown, holds: (text: string) => boolean): boolean {
  if (typeof value === 'string') return holds(value)
  if (value === null || typeof value !== 'object') return true
  return Object.entries(value).every(([key, item]) => holds(key) && everyText(item, holds))
}

/** A field that is never logged, audited or taken from a command-line argument. */
export const secret = <S extends z.ZodType>(schema: S): S =>
  schema.meta({ ...schema.meta(), secret: true }) as S

/** `value` without the fields that its schema marks as secret, at any depth. */
export function withoutSecrets(schema: z.ZodType | undefined, value: unknown): unknown {
  if (schema === undefined || value === null || typeof value !== 'object') return value
  if (!holdsSecrets(schema)) return value
  const inner = unwrap(schema)
  const shape: Record<string, z.ZodType> = inner instanceof z.ZodObject ? inner.shape : {}
  const open = Array.isArray(value)
    ? value
    : Object.fromEntries(Object.entries(value).filter(([key]) => !isSecret(shape[key])))
  return mapParts(schema, open, withoutSecrets)
}

/** `value` with `shown` in place of each text that its schema marks as secret, at any depth. */
export function mapSecrets(schema: z.ZodType, value: unknown, shown: (text: string) => string): unknown {
  if (isSecret(schema)) return typeof value === 'string' ? shown(value) : value
  if (value === null || typeof value !== 'object' || !holdsSecrets(schema)) return value
  return mapParts(schema, value, (part, item) => (part === undefined ? item : mapSecrets(part, item, shown)))
}

/**
 * A list or an object with each part mapped by its schema, which is undefined for a field that the schema does not name;
 * anything else as it is.
 */
export function mapParts(
  schema: z.ZodType,
  value: object,
  map: (part: z.ZodType | undefined, item: unknown, key?: string) => unknown,
): unknown {
  const inner = unwrap(schema)
  if (inner instanceof z.ZodArray && Array.isArray(value)) {
    return value.map((item) => map(inner.element as z.ZodType, item))
  }
  if (!(inner instanceof z.ZodObject)) return value
  const shape = inner.shape as Record<string, z.ZodType>
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, map(shape[key], item, key)]))
}

/** Whether a schema contains a part that passes a test, at any depth; computed once for each schema. */
export function containing(isPart: (schema: z.ZodType) => boolean): (schema: z.ZodType) => boolean {
  const known = new WeakMap<z.ZodType, boolean>()
  const finds = (schema: z.ZodType, seen: Set<z.ZodType>): boolean => {
    const inner = unwrap(schema)
    // A schema may contain itself.
    if (seen.has(inner)) return false
    seen.add(inner)
    const parts =
      inner instanceof z.ZodArray
        ? [inner.element as z.ZodType]
        : inner instanceof z.ZodObject
          ? Object.values(inner.shape as Record<string, z.ZodType>)
          : []
    return parts.some((part) => isPart(part) || finds(part, seen))
  }
  return (schema) => {
    const found = known.get(schema) ?? finds(schema, new Set())
    known.set(schema, found)
    return found
  }
}

/** Whether the schema contains a secret field. */
export const holdsSecrets = containing(isSecret)

export function isSecret(schema: z.ZodType | undefined): boolean {
  for (let s = schema; s !== undefined; s = layerBelow(s)) if (s.meta()?.secret === true) return true
  return false
}

/** The schema under optional, nullable, default and the like. */
export function unwrap(schema: z.ZodType): z.ZodType {
  let s = schema
  for (let below = layerBelow(s); below !== undefined; below = layerBelow(s)) s = below
  return s
}

function layerBelow(schema: z.ZodType): z.ZodType | undefined {
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault ||
    schema instanceof z.ZodCatch ||
    schema instanceof z.ZodReadonly
  ) {
    return schema.unwrap() as z.ZodType
  }
  if (schema instanceof z.ZodPipe) {
    // The input of a `z.preprocess` schema is the input of its second half.
    return (schema.in instanceof z.ZodTransform ? schema.out : schema.in) as z.ZodType
  }
  return undefined
}
