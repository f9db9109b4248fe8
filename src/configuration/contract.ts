import { z } from 'zod'
import { foldEmail } from '../core/email.ts'
import { type Endpoint, endpoint, userAccess } from '../core/endpoint.ts'
import { type PermissionPair, pairOf, permissionOf } from '../core/permissions.ts'
import {
  email,
  holdsSecrets,
  idOf,
  instant,
  isSecret,
  isShallow,
  mapSecrets,
  type Resource,
  slug,
  text,
  tooDeep,
  unwrap,
} from '../core/schema.ts'
import { filters } from '../filters/contract.ts'
import { deviceGroups } from '../groups/contract.ts'
import { invitations } from '../identity/invitations/contract.ts'
import { roles } from '../identity/roles/contract.ts'
import { people } from '../identity/users/contract.ts'
import { scripts } from '../scripts/contract.ts'
import { orgs, sites } from '../tenancy/contract.ts'
import { trustPolicies } from '../trust/contract.ts'
import {
  defaultRetryPolicy,
  NewRetryPolicy,
  NewWebhook,
  webhooks,
  withoutQuery,
} from '../webhooks/contract.ts'

/** The sections of a file in the order in which they are applied: each refers to those before it and to itself. */
export const sections = [
  'organizations',
  'sites',
  'roles',
  'filters',
  'deviceGroups',
  'scripts',
  'memberships',
  'webhooks',
  'trustPolicies',
] as const
export type Section = (typeof sections)[number]

/** How a field is written in a file, where that differs from the endpoints. */
type Spelling = {
  schema: z.ZodType
  toFile(value: unknown): unknown
  toBody(value: unknown): unknown
}

/** A value with `shown` in place of each secret in it. */
export type Guard = (value: unknown, shown: (secret: string) => string) => unknown

/** An endpoint that changes a part of an object. */
type Part = {
  entry: Endpoint
  /** The one field that it changes. */
  field: string
  /** The value of the field is the whole body. */
  isBody: boolean
}

/** A record as the endpoints return it. */
type RecordValues = Readonly<Record<string, unknown>>

/** A kind of object that files describe, by its endpoints. */
type KindEntries = {
  resource: Resource
  list: Endpoint
  create: Endpoint
  update: Endpoint
  remove: Endpoint
  /** What ends with a record, where the entry of its deletion has no `effect`. */
  ends?: { entry: Endpoint; counts(reply: RecordValues): Record<string, number> }
  /** The field of replies that is the record; undefined: the reply is. */
  reply?: 'data'
  /** What an object is called, within its organization. */
  key: 'name' | 'slug' | 'email'
  /** Whose the objects are. `either`: of an organization, or of the partner. */
  owner: 'partner' | 'organization' | 'either'
  /** Fields whose value is merged into the stored one: keys that a file leaves out stay as they are. */
  merged: readonly string[]
  spelled: Readonly<Record<string, Spelling>>
  parts?: readonly Part[]
  /** Where its endpoints find a record; by its id, if not otherwise. */
  target?(record: RecordValues): {
    params: { id: string }
    query: { orgId?: string | undefined; partnerId?: string | undefined }
  }
  /** The body of a change that changes nothing; what it is called, if not otherwise. */
  unchanged?(record: RecordValues): Record<string, unknown>
  /** Fields for what is made, which are let be afterwards. */
  initial?: readonly string[]
  /** Fields that hold secrets which their schema does not mark. */
  guarded?: Readonly<Record<string, Guard>>
  /** Fields that an object cannot be made without in a file, and why. */
  needed?: Readonly<Record<string, string>>
  /** Fields that files do not have, and why. */
  omitted: Readonly<Record<string, string>>
}

const unknownPermission = ({ input }: { input?: unknown }) =>
  `Unknown permission: ${String(input).slice(0, 100)}`
const permissionName = text(150, 1).refine((name) => permissionOf(pairOf(name)) !== undefined, {
  error: unknownPermission,
})

/** `devices:read` in place of a resource and an action. */
const permissionNames: Spelling = {
  schema: z
    .array(permissionName)
    .max(200, 'must be at most 200 permissions')
    .overwrite((names) => [...new Set(names.map((name) => permissionOf(pairOf(name)) ?? name))].sort())
    .describe('What it grants besides what it inherits'),
  toFile: (pairs) =>
    (pairs as PermissionPair[]).map(({ resource, action }) => `${resource}:${action}`).sort(),
  toBody: (names) => (names as string[]).map(pairOf),
}

/** Written in any spelling, compared in one. */
const address: Spelling = {
  schema: email.overwrite(foldEmail).describe('Where the invitation goes'),
  toFile: (text) => foldEmail(String(text)),
  toBody: (text) => text,
}

/** In the order in which they are stored. */
const eventNames: Spelling = {
  schema: NewWebhook.shape.events.overwrite((names) => [...new Set(names)].sort()),
  toFile: (names) => (names as string[]).toSorted(),
  toBody: (names) => names,
}

/** With its defaults, which stand for what is left out. */
const wholeRetryPolicy: Spelling = {
  schema: NewRetryPolicy.overwrite((policy) => ({ ...defaultRetryPolicy, ...policy })).describe(
    'How often and when a failed delivery is retried; omitted values are the defaults',
  ),
  toFile: (policy) => policy ?? defaultRetryPolicy,
  toBody: (policy) => policy,
}

const entries: Readonly<Record<Section, KindEntries>> = {
  organizations: {
    resource: 'organization',
    ...{ list: orgs.page, create: orgs.create, update: orgs.update, remove: orgs.remove },
    key: 'slug',
    owner: 'partner',
    merged: ['settings'],
    spelled: {},
    omitted: { ssoConfig: 'it may hold secrets: identity providers are set up with svc sso' },
  },
  sites: {
    resource: 'site',
    ...{ list: sites.list, create: sites.create, update: sites.update, remove: sites.remove },
    key: 'name',
    owner: 'organization',
    merged: ['settings'],
    spelled: {},
    omitted: {},
  },
  roles: {
    resource: 'role',
    ...{ list: roles.list, create: roles.create, update: roles.update, remove: roles.remove },
    key: 'name',
    owner: 'either',
    merged: [],
    spelled: { permissions: permissionNames },
    omitted: {},
  },
  filters: {
    resource: 'filter',
    ...{ list: filters.list, create: filters.create, update: filters.update, remove: filters.remove },
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
  deviceGroups: {
    resource: 'device_group',
    ...{ list: deviceGroups.list, create: deviceGroups.create, update: deviceGroups.update },
    remove: deviceGroups.remove,
    ends: {
      entry: deviceGroups.show,
      // A filter finds the members of a dynamic group again.
      counts: ({ type, deviceCount }) => ({ groupMembers: type === 'static' ? Number(deviceCount) : 0 }),
    },
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
  scripts: {
    resource: 'script',
    ...{ list: scripts.list, create: scripts.create, update: scripts.update, remove: scripts.remove },
    key: 'name',
    owner: 'either',
    merged: [],
    spelled: {},
    omitted: { isSystem: 'the scripts of the service belong to no tenant' },
  },
  memberships: {
    resource: 'user',
    ...{ list: people.list, create: invitations.invite, update: people.changeAccess, remove: people.remove },
    key: 'email',
    owner: 'either',
    merged: [],
    spelled: { email: address },
    parts: [{ entry: people.assignRole, field: 'roleId', isBody: false }],
    // A person may be a member of several tenants.
    target: ({ userId, orgId, partnerId }) => ({
      params: { id: String(userId) },
      query: orgId === null ? { partnerId: String(partnerId) } : { orgId: String(orgId) },
    }),
    unchanged: ({ orgId, orgAccess, siteIds }) => (orgId === null ? { orgAccess } : { siteIds }),
    // What people are called is theirs, once they have accepted.
    initial: ['name'],
    omitted: {},
  },
  webhooks: {
    resource: 'webhook',
    ...{ list: webhooks.list, create: webhooks.create, update: webhooks.update, remove: webhooks.remove },
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: { events: eventNames, retryPolicy: wholeRetryPolicy },
    parts: [{ entry: webhooks.setRetryPolicy, field: 'retryPolicy', isBody: true }],
    guarded: {
      url: (value, shown) => (typeof value === 'string' ? withoutQuery(value, shown) : value),
    },
    // Otherwise one would be generated, and displayed to nobody.
    needed: { secret: `is required for a new one: \${env:NAME}, or null so that nothing is signed` },
    omitted: {},
  },
  trustPolicies: {
    resource: 'trust_policy',
    ...{ list: trustPolicies.list, create: trustPolicies.create, update: trustPolicies.update },
    remove: trustPolicies.remove,
    reply: 'data',
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
}

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

/** The schema of a value that is there: a default is for what is created, and a file that leaves a field out leaves it alone. */
function presentValue(schema: z.ZodType): z.ZodType {
  const isLayer =
    schema instanceof z.ZodOptional || schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault
  return isLayer ? presentValue(schema.unwrap() as z.ZodType) : schema
}

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
function fieldsOf({ create, update, spelled, omitted, parts = [], guarded = {} }: KindEntries): FileField[] {
  const ofParts = Object.fromEntries(
    parts.map(({ entry, field, isBody }) => [field, isBody ? unwrap(entry.body!) : shapeOf(entry)[field]!]),
  )
  const [made, changed] = [shapeOf(create), { ...shapeOf(update), ...ofParts }]
  const names = Object.keys({ ...made, ...changed })
  return names
    .filter((field) => !(field in omitted) && !tenantFields.includes(field))
    .map((field) => {
      const whole = (changed[field] ?? made[field])!
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
      const { description } = made[field] ?? whole
      const isNullable = value.safeParse(null).success
      const named = isList ? objectNames : objectName
      const reference = isNullable ? named.nullable() : named
      return {
        name: refersTo === undefined ? field : field.replace(/(Role)?Id(s?)$/, '$2'),
        field,
        schema: spelled[field]?.schema ?? (refersTo === undefined ? value : reference),
        description: spelled[field]?.schema.description ?? description,
        refersTo,
        isList,
        isNullable,
        isMadeNull: made[field]?.safeParse(null).success === true,
        isMade: field in made,
        isChanged: field in changed,
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

const mostObjects = 5000
/** Of one apply: it is one transaction. */
export const mostChanges = 1000

const listOf = (section: Section) =>
  z.array(kinds[section].schema).max(mostObjects, `must have at most ${mostObjects} items`)

/** What the files of a set say together: a section that is absent is not managed. */
export const ConfigurationFile = z.strictObject(
  Object.fromEntries(sections.map((section) => [section, listOf(section).optional()])) as Record<
    Section,
    z.ZodOptional<z.ZodArray<z.ZodObject>>
  >,
)

/** What files do not describe yet, and why. */
export const uncovered: readonly { what: string; reason: string }[] = [
  { what: 'partners', reason: 'the settings of the partner are set with svc partners settings' },
  {
    what: 'memberships.status',
    reason: 'an invitation waits for its holder; svc users disable ends access at once',
  },
  { what: 'ssoProviders', reason: 'setting one up asks the provider, which a plan must not do' },
  { what: 'apiKeys', reason: 'a key is shown once, when it is made' },
  { what: 'enrollmentKeys', reason: 'a key is shown once, when it is made' },
  { what: 'auditRetention', reason: 'policies and holds are set with svc audit retention and hold' },
  { what: 'rollouts', reason: 'a rollout is an event and not a state' },
  { what: 'members of static device groups', reason: 'devices come and go: svc groups add' },
  ...sections.flatMap((section) =>
    Object.entries(entries[section].omitted).map(([field, reason]) => ({
      what: `${section}.${field}`,
      reason,
    })),
  ),
  ...sections.flatMap((section) =>
    kinds[section].fields
      .filter(({ guard }) => guard !== undefined)
      .map(({ name }) => ({
        what: `secrets in ${section}.${name}`,
        reason: `they are shown to nobody: write \${env:NAME} or \${file:PATH}`,
      })),
  ),
]

export const place = {
  section: z.enum(sections),
  org: z.string().nullable().describe('Slug of its organization; null: of the partner'),
  name: z.string().describe('Its name, or the slug of an organization'),
}

const values = z.record(z.string(), z.unknown()).nullable()

const Culprit = z.object({
  field: z.string().nullable().describe('null: the object as a whole'),
  by: z.string().describe('Address of the person, or name of the program'),
  at: instant,
  action: z.string(),
  entryId: z.guid().describe('Of the audit entry'),
})

export const Change = z
  .object({
    action: z
      .enum(['create', 'update', 'delete', 'adopt', 'release'])
      .describe('adopt: the set takes it over; release: a rollback gives it back to nobody'),
    ...place,
    renamedFrom: z.string().nullable(),
    id: z.guid().nullable().describe('null: it does not exist yet'),
    before: values.describe('The fields that change, as they are; secrets are hidden and long texts cut'),
    after: values.describe('The same as they will be'),
    ends: z.record(z.string(), z.int()).nullable().describe('How much else ends with what is deleted'),
    refused: z.string().nullable().describe('Why this change is refused'),
    culprits: z
      .array(Culprit)
      .optional()
      .describe('Who last set each field that differs, or deleted the object, where that was asked for'),
  })
  .meta({ id: 'ConfigurationChange' })
export type Change = z.output<typeof Change>

const plan = {
  set: z.string(),
  version: z
    .string()
    .describe('Of the state that was read: an apply with it is refused when the state has moved'),
  plannedAt: instant,
  changes: z.array(Change),
  left: z.array(z.object(place)).describe('Owned by the set and in no file: --prune deletes them'),
  totals: z.object({
    ...{ create: z.int(), update: z.int(), delete: z.int(), adopt: z.int(), release: z.int() },
    refused: z.int(),
    left: z.int(),
  }),
}

export const Plan = z.object(plan).meta({ id: 'ConfigurationPlan' })
export type Plan = z.output<typeof Plan>

export const ConfigurationSet = z
  .object({
    name: z.string(),
    objects: z.int().describe('How many objects it owns'),
    revision: z.string().nullable().describe('What the caller of the last apply named, such as a commit'),
    appliedAt: instant,
    appliedBy: z.string().describe('Address of the person, or name of the program'),
  })
  .meta({ id: 'ConfigurationSet' })
export type ConfigurationSet = z.output<typeof ConfigurationSet>

/** Of many thousands: without a check of each field, which would hold up other requests. */
const fileObject = z.looseObject({}).refine(isShallow, tooDeep)

/** Checked object by object when it is planned, so that faults of form come together with all others. */
const document = z
  .record(text(100, 1), z.array(fileObject).max(mostObjects, `must have at most ${mostObjects} items`))
  .describe('Sections with their objects, as svc config schema describes them')

export const pruning = {
  prune: z
    .boolean()
    .default(false)
    .describe('Delete objects of the set that no file has any more, or that the apply to roll back made'),
  pruneLimit: z
    .int()
    .min(1, 'must be at least 1')
    .max(mostChanges, `must be at most ${mostChanges}`)
    .optional()
    .describe('Most deletions; by default a tenth of the objects of a kind'),
}

const asked = {
  set: slug.default('default').describe('The set of files that own the objects'),
  document,
  adopt: z.boolean().default(false).describe('Take over objects that exist and that no set owns'),
  ...pruning,
}

const tag = 'Configuration'
const reads = userAccess({ permission: 'config:read', key: true })
const applies = userAccess({ permission: 'config:apply', key: true })
const query = z.strictObject({
  orgId: idOf('organization').optional().describe('Only the configuration of this organization'),
  partnerId: idOf('partner').optional().describe('Of this partner; for system scope'),
})
const example = { set: 'production', document: { scripts: [] } }
const maxBody = 8 * 1024 * 1024
const errors = ['tenant_required', 'org_access_denied', 'partner_mismatch'] as const

export const configuration = {
  plan: endpoint({
    method: 'POST',
    path: '/config/plan',
    idempotencyKey: { refused: 'reading' },
    summary: 'Say what applying files would change, and change nothing',
    tag,
    access: reads,
    query,
    body: z.strictObject({
      ...asked,
      culprits: z
        .boolean()
        .default(false)
        .describe('Say who last set what differs, to whoever may read the audit log'),
    }),
    maxBody,
    reply: Plan,
    audit: { unaudited: 'changes nothing' },
    errors,
    example,
  }),
  apply: endpoint({
    method: 'POST',
    path: '/config/apply',
    idempotencyKey: 'honored',
    summary: 'Apply files in one transaction: all that a plan says, or nothing',
    tag,
    access: applies,
    query,
    body: z.strictObject({
      ...asked,
      version: text(64, 1).describe('The version of the plan'),
      plannedAt: instant
        .optional()
        .describe('When it was planned: a conflict then names what has changed since'),
      revision: text(200, 1).optional().describe('What the files are a revision of, such as a commit'),
    }),
    maxBody,
    reply: z.object({ ...plan, applyId: z.guid().describe('In the details of each audit entry') }),
    audit: { action: 'config.apply', resource: 'configuration' },
    errors: [...errors, 'conflict'],
    example: { ...example, version: '0', revision: '6f2c1e9' },
  }),
  export: endpoint({
    method: 'GET',
    path: '/config/export',
    summary: 'Say what there is, in the form of a file',
    tag,
    access: reads,
    query,
    reply: z.object({
      document: z.record(z.string(), z.array(z.record(z.string(), z.unknown()))),
      skipped: z
        .array(z.object({ ...place, reason: z.string() }))
        .describe('Objects and sections that the file leaves out'),
      uncovered: z.array(z.object({ what: z.string(), reason: z.string() })),
    }),
    errors,
  }),
  sets: endpoint({
    method: 'GET',
    path: '/config/sets',
    summary: 'List the sets of files, by name',
    tag,
    access: reads,
    query,
    reply: z.object({ data: z.array(ConfigurationSet) }),
    errors,
  }),
}
