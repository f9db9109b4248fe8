import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { anyObject, idOf, instant, text, timezone } from '../../core/schema.ts'

export const Site = z
  .object({
    id: idOf('site'),
    orgId: idOf('organization'),
    name: z.string(),
    address: z.record(z.string(), z.unknown()).nullable(),
    timezone: z.string(),
    contact: z.record(z.string(), z.unknown()).nullable(),
    settings: z.record(z.string(), z.unknown()),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Site' })
export type Site = z.output<typeof Site>

const fields = {
  name: text(255, 1).describe('Name people see'),
  timezone: timezone.describe('IANA time zone'),
  address: anyObject.nullable(),
  contact: anyObject.nullable(),
}

export const NewSite = z.strictObject({
  ...fields,
  orgId: idOf('organization').describe('Organization the site belongs to'),
  timezone: fields.timezone.default('UTC'),
  address: fields.address.default(null),
  contact: fields.contact.default(null),
  settings: anyObject.default({}),
})
export type NewSite = z.output<typeof NewSite>

export const SiteChange = z
  .strictObject({
    ...fields,
    address: fields.address.describe('In place of what there is'),
    contact: fields.contact.describe('In place of what there is'),
    settings: anyObject.describe('Merged into the settings there are; null takes one out'),
  })
  .partial()
export type SiteChange = z.output<typeof SiteChange>

const tag = 'Tenancy'
const params = z.strictObject({ id: idOf('site') })

export const sites = {
  list: endpoint({
    method: 'GET',
    path: '/orgs/sites',
    summary: 'List sites',
    tag,
    access: userAccess({ permission: 'sites:read', workload: 'files' }),
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only sites of this organization'),
      organizationId: idOf('organization').optional().describe('Same as orgId').meta({ hidden: true }),
      ...pageQuery(),
    }),
    reply: pageOf(Site),
  }),
  create: endpoint({
    method: 'POST',
    path: '/orgs/sites',
    idempotencyKey: 'honored',
    summary: 'Create a site',
    tag,
    access: userAccess({ permission: 'sites:write', workload: 'files' }),
    body: NewSite,
    status: 201,
    reply: Site,
    audit: { action: 'site.create', resource: 'site' },
    quota: 'SITES',
    errors: ['org_access_denied'],
    example: { name: 'Main Office', timezone: 'Europe/Paris' },
  }),
  show: endpoint({
    method: 'GET',
    path: '/orgs/sites/:id',
    summary: 'Show a site',
    tag,
    access: userAccess({ permission: 'sites:read' }),
    params,
    reply: Site,
    errors: ['site_access_denied'],
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/orgs/sites/:id',
    summary: 'Change a site',
    tag,
    access: userAccess({ permission: 'sites:write', workload: 'files' }),
    params,
    body: SiteChange,
    reply: Site,
    audit: { action: 'site.update', resource: 'site' },
    errors: ['site_access_denied'],
    example: { name: 'Head Office', timezone: 'Europe/Lisbon' },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/orgs/sites/:id',
    summary: 'Delete a site that nothing refers to, for good',
    tag,
    access: userAccess({ permission: 'sites:delete', workload: 'files' }),
    params,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    audit: { action: 'site.delete', resource: 'site' },
    errors: ['site_access_denied', 'site_in_use'],
  }),
}
