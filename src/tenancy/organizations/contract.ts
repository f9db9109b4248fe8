import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { anyObject, boundedObject, endInstant, idOf, instant, slug, text } from '../../core/schema.ts'
import { parseWeeklyWindow } from '../../core/weekly-window.ts'
import { cap, endedWithTenant, organizationOrder } from '../partners/contract.ts'

const type = z.enum(['customer', 'internal'])
const status = z.enum(['active', 'suspended', 'trial', 'churned'])

export const Organization = z
  .object({
    id: idOf('organization'),
    partnerId: idOf('partner'),
    name: z.string(),
    slug: z.string(),
    type,
    status,
    maxDevices: z.int().nullable(),
    settings: z.record(z.string(), z.unknown()),
    ssoConfig: z.record(z.string(), z.unknown()).nullable(),
    contractStart: instant.nullable(),
    contractEnd: instant.nullable(),
    billingContact: z.record(z.string(), z.unknown()).nullable(),
    createdAt: instant,
    updatedAt: instant,
    deletedAt: instant.nullable(),
  })
  .meta({ id: 'Organization' })
export type Organization = z.output<typeof Organization>

const flag = z.boolean().nullable().optional()

/** staged and auto: promoted versions and rollouts apply; manual: nothing is updated automatically. */
export const agentUpdatePolicy = z.enum(['auto', 'staged', 'manual'])

const maintenanceWindow = text(20).refine(
  (value) => parseWeeklyWindow(value) !== undefined,
  'must be a day and two times in UTC, such as Sun 02:00-04:00',
)

/**
 * Settings that the service uses are validated, others are free. A change is merged into the stored settings;
 * null removes a key.
 */
export const OrganizationSettings = boundedObject(
  z.looseObject({
    security: z
      .looseObject({
        requireMfa: flag.describe('Members have to use a second factor'),
        allowedMfaMethods: z
          .looseObject({ sms: flag.describe('Codes by SMS are allowed') })
          .nullable()
          .optional(),
      })
      .nullable()
      .optional(),
    defaults: z
      .looseObject({
        agentUpdatePolicy: agentUpdatePolicy
          .nullable()
          .optional()
          .describe('Whether agents are offered other versions; staged by default, never with manual'),
        maintenanceWindow: maintenanceWindow
          .nullable()
          .optional()
          .describe('When they are, each week, in UTC; at any time without one'),
      })
      .nullable()
      .optional(),
  }),
)

const fields = {
  name: text(255, 1).describe('Name people see'),
  slug: slug.describe('Short name, unique within the partner'),
  type: type.describe('A customer, or a part of the partner itself'),
  maxDevices: cap.nullable().describe('Most devices the organization may enroll'),
  contractStart: instant.nullable().describe('When the contract begins'),
  contractEnd: endInstant.nullable().describe('When the contract ends'),
}

export const NewOrganization = z.strictObject({
  ...fields,
  partnerId: idOf('partner').optional().describe('Parent partner; required in system scope'),
  type: fields.type.default('customer'),
  status: status.default('active'),
  maxDevices: fields.maxDevices.default(null),
  contractStart: fields.contractStart.default(null),
  contractEnd: fields.contractEnd.default(null),
  settings: OrganizationSettings.default({}),
})
export type NewOrganization = z.output<typeof NewOrganization>

export const OrganizationChange = z
  .strictObject({
    ...fields,
    status: status.describe('suspended and churned end sessions and API keys for good'),
    settings: OrganizationSettings.describe('Merged into the settings there are; null takes one out'),
    ssoConfig: anyObject.nullable().describe('In place of what there is'),
    billingContact: anyObject.nullable().describe('In place of what there is'),
  })
  .partial()
export type OrganizationChange = z.output<typeof OrganizationChange>

export const OrganizationOrder = z
  .strictObject({
    organizationOrder: organizationOrder
      .optional()
      .describe('Organizations in their new order; those left out follow as they were registered')
      .meta({ flag: 'orgs' }),
    orderedIds: organizationOrder.optional().describe('Same as organizationOrder').meta({ hidden: true }),
  })
  .refine((body) => body.organizationOrder ?? body.orderedIds, {
    path: ['organizationOrder'],
    error: 'is required',
  })

const tag = 'Tenancy'
const reads = userAccess({ scopes: ['partner', 'system'], permission: 'organizations:read' })
const writes = userAccess({ scopes: ['partner', 'system'], permission: 'organizations:write' })
const deletes = userAccess({ scopes: ['partner', 'system'], permission: 'organizations:delete' })
const params = z.strictObject({ id: idOf('organization') })

const deletion = endpoint({
  method: 'GET',
  path: '/orgs/organizations/:id/deletion',
  summary: 'Count what the deletion of an organization would end; the audit log is kept',
  tag,
  access: deletes,
  params,
  reply: z.object(endedWithTenant),
})

export const orgs = {
  deletion,
  list: endpoint({
    method: 'GET',
    path: '/orgs/',
    summary: 'List every organization you can see, by name',
    tag,
    // Every signed-in user may see their own organization.
    access: userAccess(),
    readQuery: true,
    reply: z.object({ data: z.array(Organization) }),
  }),
  page: endpoint({
    method: 'GET',
    path: '/orgs/organizations',
    summary: 'List organizations page by page',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      partnerId: idOf('partner').optional().describe('Only organizations of this partner'),
      ...pageQuery(),
    }),
    reply: pageOf(Organization),
  }),
  create: endpoint({
    method: 'POST',
    path: '/orgs/organizations',
    idempotencyKey: 'honored',
    summary: 'Create an organization',
    tag,
    access: writes,
    body: NewOrganization,
    status: 201,
    reply: Organization,
    audit: { action: 'organization.create', resource: 'organization' },
    quota: 'ORGANIZATIONS',
    errors: ['slug_taken', 'partner_mismatch', 'organization_limit_reached'],
    example: { name: 'Blue Bakery', slug: 'blue-bakery' },
  }),
  order: endpoint({
    method: 'PATCH',
    path: '/orgs/organizations/order',
    summary: 'Put the organizations of your partner in order',
    tag,
    access: userAccess({ scopes: ['partner'], permission: 'organizations:write', wholePartner: true }),
    body: OrganizationOrder,
    reply: z.object({ organizationOrder: z.array(idOf('organization')) }),
    audit: { action: 'partner.organizationOrder.update', resource: 'partner' },
    example: { organizationOrder: ['0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11'] },
  }),
  show: endpoint({
    method: 'GET',
    path: '/orgs/organizations/:id',
    summary: 'Show an organization',
    tag,
    access: reads,
    params,
    reply: Organization,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/orgs/organizations/:id',
    summary: 'Change an organization',
    tag,
    access: writes,
    params,
    body: OrganizationChange,
    reply: Organization,
    audit: { action: 'organization.update', resource: 'organization' },
    errors: ['slug_taken'],
    example: { name: 'Blue Bakery & Sons', settings: { security: { requireMfa: true } } },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/orgs/organizations/:id',
    summary: 'Delete an organization; its sites stay',
    tag,
    access: deletes,
    params,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    effect: deletion,
    audit: { action: 'organization.delete', resource: 'organization' },
  }),
}
