import { z } from 'zod'
import type { Endpoint } from '../../core/endpoint.ts'
import { isFreeObject } from '../../core/free-objects.ts'
import { holdsSecrets, isSecret, mapSecrets, slug, text, unwrap } from '../../core/schema.ts'
import {
  entries,
  type Guard,
  type KindEntries,
  type Part,
  type Section,
  sections,
} from '../kinds/contract.ts'

/** A field of an object in a file. */
export type FileField = {
  /** In the file. */
  name: string
  /** In the endpoints. */
  field: string
  schema: z.ZodType
  description: string | undefined
  /** The section whose objects it names, instead of their ids. */
  refersTo: Section | undefined
  /** It names several. */
  isList: boolean
  /** It may be null, and so when it is made. */
  isNullable: boolean
  isMadeNull: boolean
  /** Of the endpoints that take it. */
  isMade: boolean
  isChanged: boolean
  /** An object that may hold anything, and so secrets that its schema does not mark. */
  isFree: boolean
  /** The endpoint of a part, whose body its value is. */
  part: Part | undefined
  /** undefined: it holds no secrets. */
  guard: Guard | undefined
}

export type Kind = KindEntries & {
  section: Section
  fields: readonly FileField[]
  /** One object of the section. */
  schema: z.ZodObject
}

/** The tenant of a record: in a file `org`, or whoever applies it. */
const tenantFields = ['orgId', 'partnerId']

/** The schema without its default: that is for what is created, and a field that a file leaves out stays as it is. */
function presentValue(schema: z.ZodType): z.ZodType {
  const isLayer =
    schema instanceof z.ZodOptional || schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault
  return isLayer ? presentValue(schema.unwrap() as z.ZodType) : schema
}

/** Of the value, where its default or its absence has none. */
const descriptionOf = (schema: z.ZodType | undefined): string | undefined =>
  schema && (schema.description ?? presentValue(schema).description)

const shapeOf = ({ body }: Endpoint) => (unwrap(body!) as z.ZodObject).shape as Record<string, z.ZodType>

const sectionOf = (resource: unknown): Section | undefined =>
  sections.find((section) => entries[section].resource === resource)

const objectName = text(255, 1)
const objectNames = z
  .array(objectName)
  .max(1000, 'must be at most 1000')
  .overwrite((names) => [...new Set(names)].sort())

const guardOf = (schema: z.ZodType): Guard | undefined =>
  isSecret(schema) || holdsSecrets(schema) ? (value, shown) => mapSecrets(schema, value, shown) : undefined

/** Derived from the endpoints that create and change it: a field that is added there is added here. */
function fieldsOf(kind: KindEntries): FileField[] {
  const { create, update, spelled, omitted, parts = [], guarded = {}, fileNames = {} } = kind
  const ofParts = Object.fromEntries(
    parts.map(({ entry, field, isBody }) => [field, isBody ? unwrap(entry.body!) : shapeOf(entry)[field]!]),
  )
  const [made, changed] = [shapeOf(create), { ...shapeOf(update), ...ofParts }]
  const names = Object.keys({ ...made, ...changed })
  return names
    .filter((field) => !(field in omitted) && !tenantFields.includes(field))
    .map((field) => {
      const values = [changed[field], made[field]].filter((one) => one !== undefined).map(presentValue)
      // What is created without a value is exported without one.
      const value = values.find((one) => one.safeParse(null).success) ?? values[0]!
      const inner = unwrap(value)
      const isList =
        inner instanceof z.ZodArray && (inner.element as z.ZodType).meta()?.resource !== undefined
      const resource = (isList ? (inner.element as z.ZodType) : inner).meta()?.resource
      const refersTo = sectionOf(resource)
      if (resource !== undefined && refersTo === undefined)
        throw new Error(`${field} refers to a ${String(resource)}, which no section of a file has`)
      const description = descriptionOf(made[field]) ?? descriptionOf(changed[field])
      const isNullable = value.safeParse(null).success
      const named = isList ? objectNames : objectName
      const reference = isNullable ? named.nullable() : named
      return {
        name: fileNames[field] ?? (refersTo === undefined ? field : field.replace(/(Role)?Id(s?)$/, '$2')),
        field,
        schema: spelled[field]?.schema ?? (refersTo === undefined ? value : reference),
        description: spelled[field]?.schema.description ?? description,
        refersTo,
        isList,
        isNullable,
        isMadeNull: made[field]?.safeParse(null).success === true,
        isMade: field in made,
        isChanged: field in changed,
        isFree: kind.merged.includes(field) || isFreeObject(inner),
        part: parts.find((part) => part.field === field),
        guard: guarded[field] ?? guardOf(value),
      }
    })
}

function kindOf(section: Section): Kind {
  const kind = entries[section]
  const fields = fieldsOf(kind)
  const described = fields.map(({ name, schema, description }) => {
    const field = name === kind.key ? schema : schema.optional()
    return [name, description === undefined ? field : field.describe(description)]
  })
  const renamedFrom = objectName.optional().describe(`What its ${kind.key} was before: it is renamed`)
  const org = slug.optional().describe('Slug of its organization')
  return {
    ...kind,
    section,
    fields,
    schema: z.strictObject({
      ...(kind.owner !== 'partner' && { org }),
      ...Object.fromEntries(described),
      renamedFrom,
    }),
  }
}

export const kinds: Readonly<Record<Section, Kind>> = Object.fromEntries(
  sections.map((section) => [section, kindOf(section)]),
) as Record<Section, Kind>

/** What an object is called, in the one spelling in which the service returns it. */
export const keyOf = (section: Section, key: unknown): unknown =>
  typeof key === 'string' ? (kinds[section].spelled[kinds[section].key]?.toFile(key) ?? key) : key

export const maxObjects = 5000

const listOf = (section: Section) =>
  z.array(kinds[section].schema).max(maxObjects, `must have at most ${maxObjects} items`)

/** What the files of a set say together: a section that is absent is not managed. */
export const ConfigurationFile = z.strictObject(
  Object.fromEntries(sections.map((section) => [section, listOf(section).optional()])) as Record<
    Section,
    z.ZodOptional<z.ZodArray<z.ZodObject>>
  >,
)

/** What files of these sections do not describe, and why. */
export const uncoveredBy = (some: readonly Section[]): { what: string; reason: string }[] => [
  {
    what: 'memberships.status',
    reason: 'an invitation waits for its holder; svc users disable ends access at once',
  },
  {
    what: 'auditHolds',
    reason: 'a hold answers a case, and a file that does not know of it must not release it: svc audit hold',
  },
  { what: 'rollouts', reason: 'a rollout is an event and not a state' },
  { what: 'members of static device groups', reason: 'devices come and go: svc groups add' },
  {
    what: 'siteId, groupId and orgId in conditions of filters',
    reason: 'they stay ids, which other installations do not have',
  },
  {
    what: 'maintenance windows of devices',
    reason: 'devices come and go: svc devices maintenance; that of an organization is in its settings',
  },
  ...some.flatMap((section) => {
    const { whyNotCreated } = entries[section]
    return whyNotCreated === undefined ? [] : [{ what: `new ${section}`, reason: whyNotCreated }]
  }),
  ...some.flatMap((section) =>
    Object.entries(entries[section].omitted).map(([field, reason]) => ({
      what: `${section}.${field}`,
      reason,
    })),
  ),
  ...some.flatMap((section) =>
    kinds[section].fields
      .filter(({ guard }) => guard !== undefined)
      .map(({ name }) => ({
        what: `secrets in ${section}.${name}`,
        reason: `they are shown to nobody: write \${env:NAME} or \${file:PATH}`,
      })),
  ),
]
