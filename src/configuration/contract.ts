import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { isJsonObject } from '../core/json.ts'
import { idOf, instant, isShallow, slug, text, tooDeep } from '../core/schema.ts'
import { maxObjects } from './fields/contract.ts'
import { sections } from './kinds/contract.ts'

export { ConfigurationFile, type FileField, type Kind, keyOf, kinds, uncoveredBy } from './fields/contract.ts'
export { type Guard, type Section, sections } from './kinds/contract.ts'

/** Of one apply: it is one transaction. */
export const maxChanges = 1000

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
      .describe('adopt: the set takes it over; release: it belongs to no set any more'),
    ...place,
    renamedFrom: z.string().nullable(),
    id: z.guid().nullable().describe('null: it does not exist yet'),
    before: values.describe('The fields that change, as they are; secrets are hidden and long texts cut'),
    after: values.describe('The same as they will be'),
    ends: z
      .record(z.string(), z.int())
      .nullable()
      .describe(
        'How much else ends with what is deleted, or changed; limitedApiKeys can do less than before',
      ),
    warning: z
      .string()
      .nullable()
      .describe(
        'What should be looked at, as the endpoint of the change says it to this caller; null: nothing',
      ),
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
  left: z
    .array(z.object(place))
    .describe('Owned by the set and in no file: --prune deletes or releases them'),
  renamedByHand: z
    .array(z.object({ ...place, nameInFiles: z.string().describe('What they called it at the last apply') }))
    .optional()
    .describe('What somebody has renamed as the files call it now: an apply remembers that'),
  totals: z.object({
    create: z.int(),
    update: z.int(),
    delete: z.int(),
    adopt: z.int(),
    release: z.int(),
    refused: z.int(),
    left: z.int(),
  }),
}

export const Plan = z
  .object({
    ...plan,
    notCompared: z
      .array(z.object({ ...place, field: z.string() }))
      .optional()
      .describe('Fields that withoutSecrets names, in its order'),
  })
  .meta({ id: 'ConfigurationPlan' })
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

/** There are many thousands: a schema for each of them would hold up other requests. */
const fileObjects = z
  .custom<Record<string, unknown>[]>()
  .superRefine((objects: unknown, { addIssue }) => {
    const fault = (path: number[], message: string) =>
      addIssue({ code: 'custom', path, message, input: objects })
    if (!Array.isArray(objects)) return fault([], 'must be a list')
    if (objects.length > maxObjects) return fault([], `must have at most ${maxObjects} items`)
    objects.forEach((object: unknown, at) => {
      if (!isJsonObject(object)) fault([at], 'must be an object')
      else if (!isShallow(object)) fault([at], tooDeep.error)
    })
  })
  .meta({ maxItems: maxObjects, type: 'array', items: { type: 'object', additionalProperties: {} } })

/** Checked object by object when it is planned, so that faults of form come together with all others. */
const document = z
  .record(text(100, 1), fileObjects)
  .describe('Sections with their objects, as svc config schema describes them')

export const pruning = {
  prune: z
    .boolean()
    .default(false)
    .describe('Delete objects of the set that no file has any more, or that the apply to roll back made'),
  pruneLimit: z
    .int()
    .min(1, 'must be at least 1')
    .max(maxChanges, `must be at most ${maxChanges}`)
    .optional()
    .describe(
      'Most deletions of a kind; by default a tenth of the objects that the set owns, and at least 1',
    ),
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
      withoutSecrets: z
        .array(
          z.strictObject({
            section: z.enum(sections),
            object: z.int().min(0, 'must be at least 0').describe('Its number in the section, from 0'),
            field: text(100, 1),
          }),
        )
        .max(maxObjects, `must have at most ${maxObjects} items`)
        .default([])
        .describe(
          'Fields that the document leaves out because their secrets are not at hand: they are not compared, and no apply takes the version of such a plan',
        ),
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
    isSnapshot: true,
    summary: 'Apply files in one transaction: all that a plan says, or nothing',
    tag,
    access: applies,
    query,
    body: z.strictObject({
      ...asked,
      version: text(200, 1).describe('The version of the plan'),
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
    query: query.extend({ set: slug.optional().describe('Leave out what other sets than this one own') }),
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
