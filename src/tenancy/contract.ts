import { z } from 'zod'
import { endpoint, user } from '../core/endpoint.ts'
import { pageOf, pageQuery } from '../core/page.ts'
import { email, freeObject, idOf, instant, slug, text } from '../core/schema.ts'

const stamps = { createdAt: instant, updatedAt: instant }
const cap = z.int().min(0).max(1_000_000)

const partnerType = z.enum(['msp', 'enterprise', 'internal'])
const partnerPlan = z.enum(['free', 'starter', 'community', 'pro', 'enterprise', 'unlimited'])
const partnerStatus = z.enum(['pending', 'active', 'suspended', 'churned'])
const orgType = z.enum(['customer', 'internal'])
const orgStatus = z.enum(['active', 'suspended', 'trial', 'churned'])

const timezone = text(50, 1).refine((name) => {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
    return /^[A-Za-z]/.test(name)
  } catch {
    return false
  }
}, 'must be an IANA time zone, such as Europe/Paris')

export const Partner = z
  .object({
    id: idOf('partner'),
    name: z.string(),
    slug: z.string(),
    type: partnerType,
    plan: partnerPlan,
    status: partnerStatus,
    maxOrganizations: z.int().nullable(),
    maxDevices: z.int().nullable(),
    settings: z.record(z.string(), z.unknown()),
    ssoConfig: z.record(z.string(), z.unknown()).nullable(),
    billingEmail: z.string().nullable(),
    ...stamps,
    deletedAt: instant.nullable(),
  })
  .meta({ id: 'Partner' })
export type Partner = z.output<typeof Partner>

export const NewPartner = z.strictObject({
  name: text(255, 1).describe('Name people see'),
  slug: slug.describe('Short unique name, such as acme'),
  type: partnerType.default('msp'),
  plan: partnerPlan.default('free'),
  maxOrganizations: cap.nullable().default(null).describe('Most organizations the partner may have'),
  maxDevices: cap.nullable().default(null).describe('Most devices over all its organizations'),
  billingEmail: email.nullable().default(null),
})
export type NewPartner = z.output<typeof NewPartner>

export const Organization = z
  .object({
    id: idOf('organization'),
    partnerId: idOf('partner'),
    name: z.string(),
    slug: z.string(),
    type: orgType,
    status: orgStatus,
    maxDevices: z.int().nullable(),
    settings: z.record(z.string(), z.unknown()),
    ssoConfig: z.record(z.string(), z.unknown()).nullable(),
    contractStart: instant.nullable(),
    contractEnd: instant.nullable(),
    billingContact: z.record(z.string(), z.unknown()).nullable(),
    ...stamps,
    deletedAt: instant.nullable(),
  })
  .meta({ id: 'Organization' })
export type Organization = z.output<typeof Organization>

export const NewOrganization = z.strictObject({
  partnerId: idOf('partner').optional().describe('Parent partner; required in system scope'),
  name: text(255, 1).describe('Name people see'),
  slug: slug.describe('Short name, unique within the partner'),
  type: orgType.default('customer'),
  status: orgStatus.default('active'),
  maxDevices: cap.nullable().default(null).describe('Most devices the organization may enroll'),
  contractStart: instant.nullable().default(null),
  contractEnd: instant.nullable().default(null),
  settings: freeObject.default({}),
})
export type NewOrganization = z.output<typeof NewOrganization>

export const Site = z
  .object({
    id: idOf('site'),
    orgId: idOf('organization'),
    name: z.string(),
    address: z.record(z.string(), z.unknown()).nullable(),
    timezone: z.string(),
    contact: z.record(z.string(), z.unknown()).nullable(),
    settings: z.record(z.string(), z.unknown()),
    ...stamps,
  })
  .meta({ id: 'Site' })
export type Site = z.output<typeof Site>

export const NewSite = z.strictObject({
  orgId: idOf('organization').describe('Organization the site belongs to'),
  name: text(255, 1).describe('Name people see'),
  timezone: timezone.default('UTC').describe('IANA time zone'),
  address: freeObject.nullable().default(null),
  contact: freeObject.nullable().default(null),
  settings: freeObject.default({}),
})
export type NewSite = z.output<typeof NewSite>

const tag = 'Tenancy'

export const partners = {
  list: endpoint({
    method: 'GET',
    path: '/orgs/partners',
    summary: 'List partners',
    tag,
    access: user({ scopes: ['system'], permission: 'organizations:read' }),
    query: z.strictObject(pageQuery()),
    reply: pageOf(Partner),
  }),
  create: endpoint({
    method: 'POST',
    path: '/orgs/partners',
    summary: 'Create a partner',
    tag,
    access: user({ scopes: ['system'], permission: 'organizations:write' }),
    body: NewPartner,
    status: 201,
    reply: Partner,
    audit: { action: 'partner.create', resource: 'partner' },
    errors: ['slug_taken'],
    example: { name: 'Acme IT', slug: 'acme' },
  }),
  show: endpoint({
    method: 'GET',
    path: '/orgs/partners/:id',
    summary: 'Show a partner',
    tag,
    access: user({ scopes: ['system'], permission: 'organizations:read' }),
    params: z.strictObject({ id: idOf('partner') }),
    reply: Partner,
  }),
}

export const orgs = {
  list: endpoint({
    method: 'GET',
    path: '/orgs/',
    summary: 'List every organization you can see, by name',
    tag,
    access: user({ permission: 'organizations:read' }),
    reply: z.object({ data: z.array(Organization) }),
  }),
  page: endpoint({
    method: 'GET',
    path: '/orgs/organizations',
    summary: 'List organizations page by page',
    tag,
    access: user({ scopes: ['partner', 'system'], permission: 'organizations:read' }),
    query: z.strictObject({
      partnerId: idOf('partner').optional().describe('Only organizations of this partner'),
      ...pageQuery(),
    }),
    reply: pageOf(Organization),
  }),
  create: endpoint({
    method: 'POST',
    path: '/orgs/organizations',
    summary: 'Create an organization',
    tag,
    access: user({ scopes: ['partner', 'system'], permission: 'organizations:write' }),
    body: NewOrganization,
    status: 201,
    reply: Organization,
    audit: { action: 'organization.create', resource: 'organization' },
    errors: ['slug_taken', 'partner_mismatch', 'organization_limit_reached'],
    example: { name: 'Blue Bakery', slug: 'blue-bakery' },
  }),
  show: endpoint({
    method: 'GET',
    path: '/orgs/organizations/:id',
    summary: 'Show an organization',
    tag,
    access: user({ scopes: ['partner', 'system'], permission: 'organizations:read' }),
    params: z.strictObject({ id: idOf('organization') }),
    reply: Organization,
  }),
}

export const sites = {
  list: endpoint({
    method: 'GET',
    path: '/orgs/sites',
    summary: 'List sites',
    tag,
    access: user({ permission: 'sites:read' }),
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
    summary: 'Create a site',
    tag,
    access: user({ permission: 'sites:write' }),
    body: NewSite,
    status: 201,
    reply: Site,
    audit: { action: 'site.create', resource: 'site' },
    errors: ['org_access_denied'],
    example: { name: 'Main Office', timezone: 'Europe/Paris' },
  }),
  show: endpoint({
    method: 'GET',
    path: '/orgs/sites/:id',
    summary: 'Show a site',
    tag,
    access: user({ permission: 'sites:read' }),
    params: z.strictObject({ id: idOf('site') }),
    reply: Site,
    errors: ['site_access_denied'],
  }),
}
