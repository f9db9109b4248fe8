import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { pageOf, pageQuery } from '../core/page.ts'
import { idOf, idPrefix, instant, queryNumber, text } from '../core/schema.ts'
import { deviceStatus, osType } from '../devices/contract.ts'
import { ConditionGroup, StoredGroup } from './conditions/contract.ts'
import { FilterField } from './fields/contract.ts'

export { Condition, ConditionGroup, ConditionValue } from './conditions/contract.ts'
export {
  type Field,
  FilterField,
  fields,
  findField,
  type Operator,
  operators,
} from './fields/contract.ts'

export const SavedFilter = z
  .object({
    id: idOf('filter'),
    orgId: idOf('organization'),
    name: z.string(),
    description: z.string().nullable(),
    conditions: StoredGroup,
    createdBy: z.guid(),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'SavedFilter' })
export type SavedFilter = z.output<typeof SavedFilter>

const name = text(200, 1)
const description = text(1000).nullable()
const conditions = ConditionGroup.describe('Which devices match')

export const NewSavedFilter = z.strictObject({
  orgId: idOf('organization')
    .optional()
    .describe(
      'Organization it belongs to; needed in partner and system scope, ignored in organization scope',
    ),
  name: name.describe('Name of the filter'),
  description: description.optional().describe('Purpose of the filter'),
  conditions,
})
export type NewSavedFilter = z.output<typeof NewSavedFilter>

export const SavedFilterChange = z
  .strictObject({
    name: name.optional().describe('New name'),
    description: description.optional().describe('New description; null clears it'),
    conditions: conditions.optional(),
  })
  .refine((change) => Object.values(change).some((value) => value !== undefined), 'must change something')
export type SavedFilterChange = z.output<typeof SavedFilterChange>

/** A device as a preview lists it. */
export const PreviewedDevice = z
  .object({
    id: idOf('device'),
    hostname: z.string(),
    displayName: z.string().nullable(),
    osType,
    status: deviceStatus,
    lastSeenAt: instant.nullable(),
  })
  .meta({ id: 'PreviewedDevice' })
export type PreviewedDevice = z.output<typeof PreviewedDevice>

export const FilterPreview = z
  .object({
    data: z.object({
      totalCount: z.int().describe('Devices that match, in all organizations the caller can see'),
      devices: z.array(PreviewedDevice).describe('The first of them by hostname'),
      evaluatedAt: instant,
    }),
  })
  .meta({ id: 'FilterPreview' })
export type FilterPreview = z.output<typeof FilterPreview>

const limits = { error: 'must be a whole number from 1 to 100' }
const limit = z.int(limits).min(1, limits).max(100, limits).default(10)
const limitInQuery = queryNumber(z.int(limits).min(1, limits).max(100, limits)).prefault(10)

/** 5000 names of 50 characters fit. A page of filters is read and serialized at once. */
const maxBody = 256 * 1024
const maxPage = 20

const tag = 'Filters'
const reads = userAccess({ permission: 'devices:read', key: true })
const writes = userAccess({ permission: 'devices:write', key: true })
const params = z.strictObject({ id: idOf('filter') })
const oneOrgId = idOf('organization').optional().describe('Only devices of this organization')
const example: ConditionGroup = {
  operator: 'AND',
  conditions: [
    { field: 'osType', operator: 'equals', value: 'windows' },
    { field: 'lastSeenAt', operator: 'notWithinLast', value: { amount: 7, unit: 'days' } },
  ],
}

export const filters = {
  list: endpoint({
    method: 'GET',
    path: '/filters',
    summary: 'List saved filters, newest first',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only filters of this organization'),
      search: text(1000).optional().describe('Part of the name or description'),
      idPrefix,
      ...pageQuery({ default: maxPage, max: maxPage }),
    }),
    reply: pageOf(SavedFilter).extend({ total: z.int().describe('In all, as in pagination') }),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/filters',
    idempotencyKey: 'honored',
    summary: 'Save a filter',
    tag,
    access: writes,
    body: NewSavedFilter,
    maxBody,
    status: 201,
    reply: SavedFilter,
    audit: { action: 'filter.create', resource: 'filter' },
    quota: 'FILTERS',
    errors: ['org_access_denied', 'filter_too_expensive'],
    example: { name: 'Silent Windows machines', conditions: example },
  }),
  fields: endpoint({
    method: 'GET',
    path: '/filters/fields',
    summary: 'List the fields that a filter can use',
    tag,
    access: reads,
    reply: z.object({ data: z.array(FilterField) }),
  }),
  preview: endpoint({
    method: 'POST',
    path: '/filters/preview',
    idempotencyKey: { refused: 'reading' },
    summary: 'Show which devices match conditions that are not saved',
    tag,
    access: reads,
    readQuery: true,
    body: z.strictObject({
      orgId: oneOrgId,
      conditions,
      limit: limit.describe('Devices to show, at most 100'),
    }),
    maxBody,
    reply: FilterPreview,
    audit: { action: 'filter.preview', resource: 'filter' },
    errors: ['org_access_denied', 'filter_too_expensive'],
    example: { conditions: example, limit: 10 },
  }),
  show: endpoint({
    method: 'GET',
    path: '/filters/:id',
    summary: 'Show a saved filter',
    tag,
    access: reads,
    params,
    reply: SavedFilter,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/filters/:id',
    summary: 'Change a saved filter',
    tag,
    access: writes,
    readQuery: true,
    params,
    body: SavedFilterChange,
    maxBody,
    reply: SavedFilter,
    audit: { action: 'filter.update', resource: 'filter' },
    errors: ['filter_too_expensive'],
    example: { name: 'Windows machines unseen for a week', description: null },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/filters/:id',
    summary: 'Delete a saved filter',
    tag,
    access: writes,
    params,
    reply: SavedFilter,
    audit: { action: 'filter.delete', resource: 'filter' },
  }),
  savedPreview: endpoint({
    method: 'POST',
    path: '/filters/:id/preview',
    idempotencyKey: { refused: 'reading' },
    summary: 'Show which devices a saved filter matches, in all organizations the caller can see or in one',
    tag,
    access: reads,
    readQuery: true,
    params,
    query: z.strictObject({
      orgId: oneOrgId,
      limit: limitInQuery.describe('Devices to show, at most 100'),
    }),
    reply: FilterPreview,
    audit: { action: 'filter.saved.preview', resource: 'filter' },
    errors: ['org_access_denied', 'filter_too_expensive'],
  }),
}
