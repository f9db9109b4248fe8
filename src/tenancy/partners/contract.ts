import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { anyObject, email, idOf, instant, slug, text, timezone } from '../../core/schema.ts'

export const cap = z.int().min(0, 'must be at least 0').max(1_000_000, 'must be at most 1000000')

const type = z.enum(['msp', 'enterprise', 'internal'])
const plan = z.enum(['free', 'starter', 'community', 'pro', 'enterprise', 'unlimited'])
const status = z.enum(['pending', 'active', 'suspended', 'churned'])

export const Partner = z
  .object({
    id: idOf('partner'),
    name: z.string(),
    slug: z.string(),
    type,
    plan,
    status,
    maxOrganizations: z.int().nullable(),
    maxDevices: z.int().nullable(),
    settings: z.record(z.string(), z.unknown()),
    ssoConfig: z.record(z.string(), z.unknown()).nullable(),
    billingEmail: z.string().nullable(),
    createdAt: instant,
    updatedAt: instant,
    deletedAt: instant.nullable(),
  })
  .meta({ id: 'Partner' })
export type Partner = z.output<typeof Partner>

/** A setting that does not change when omitted, and is removed when null. */
const setting = <S extends z.ZodType>(schema: S) => schema.nullable().optional()

const clock = text(5).regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'must be a time such as 08:30')
/** A day is always replaced as a whole. */
const day = z.strictObject({ start: clock, end: clock, closed: z.boolean().default(false) })

/** Most organizations in a custom order. */
const longestOrder = 10_000
export const organizationOrder = z.array(idOf('organization')).max(longestOrder)

/** Settings of a partner. A change is merged into the stored settings; null removes a key. */
export const PartnerSettings = z
  .strictObject({
    timezone: setting(timezone).describe('IANA time zone'),
    dateFormat: setting(z.enum(['MM/DD/YYYY', 'DD/MM/YYYY', 'YYYY-MM-DD'])).describe('How dates are shown'),
    timeFormat: setting(z.enum(['12h', '24h'])).describe('How times are shown'),
    language: setting(z.enum(['en'])).describe('Language people see'),
    businessHours: setting(
      z.strictObject({
        preset: setting(z.enum(['24/7', 'business', 'extended', 'custom'])).describe('When people work'),
        custom: setting(
          z.strictObject({
            monday: setting(day),
            tuesday: setting(day),
            wednesday: setting(day),
            thursday: setting(day),
            friday: setting(day),
            saturday: setting(day),
            sunday: setting(day),
          }),
        ).describe('Hours of each day, when the preset is custom'),
      }),
    ),
    contact: setting(
      z.strictObject({
        name: setting(text(255)).describe('Whom to talk to'),
        email: setting(email).describe('Their e-mail address'),
        phone: setting(text(50)).describe('Their phone number'),
        website: setting(text(500)).describe('Web site of the partner'),
      }),
    ),
    organizationOrder: setting(organizationOrder).describe('Organizations in the order they are shown in'),
  })
  .meta({ id: 'PartnerSettings', spread: true })
export type PartnerSettings = z.output<typeof PartnerSettings>

const fields = {
  name: text(255, 1).describe('Name people see'),
  slug: slug.describe('Short unique name, such as acme'),
  maxOrganizations: cap.nullable().describe('Most organizations the partner may have'),
  maxDevices: cap.nullable().describe('Most devices over all its organizations'),
  billingEmail: email.nullable().describe('Where bills go'),
}

export const NewPartner = z.strictObject({
  ...fields,
  type: type.default('msp'),
  plan: plan.default('free'),
  maxOrganizations: fields.maxOrganizations.default(null),
  maxDevices: fields.maxDevices.default(null),
  billingEmail: fields.billingEmail.default(null),
})
export type NewPartner = z.output<typeof NewPartner>

export const PartnerChange = z
  .strictObject({
    ...fields,
    type,
    plan,
    status: status.describe('suspended and churned end sessions and API keys for good'),
    settings: PartnerSettings.describe('Merged into the settings there are; null takes one out'),
    ssoConfig: anyObject.nullable().describe('In place of what there is'),
  })
  .partial()
export type PartnerChange = z.output<typeof PartnerChange>

export const OwnPartnerChange = PartnerChange.pick({ name: true, billingEmail: true, settings: true })

/** What ends with a tenant that is deleted. */
export const endedWithTenant = {
  devices: z.int().describe('Devices whose agents are refused'),
  apiKeys: z.int().describe('API keys that are revoked'),
  enrollmentKeys: z.int().describe('Enrollment keys that expire'),
  members: z.int().describe('People who lose their access'),
  sites: z.int().describe('Sites that nobody sees any more'),
  roles: z.int().describe('Roles of its own that nobody can have any more'),
  filters: z.int().describe('Saved filters that nobody sees any more'),
  deviceGroups: z.int().describe('Device groups that nobody sees any more'),
  scripts: z.int().describe('Scripts of its own that nobody runs any more'),
  webhooks: z.int().describe('Webhooks that receive nothing any more'),
  ssoProviders: z.int().describe('SSO providers through which nobody signs in any more'),
  trustPolicies: z.int().describe('Trust policies by which no job signs in any more'),
}

const tag = 'Tenancy'
const params = z.strictObject({ id: idOf('partner') })

const deletion = endpoint({
  method: 'GET',
  path: '/orgs/partners/:id/deletion',
  summary: 'Count what the deletion of a partner would end; the audit log is kept',
  tag,
  access: userAccess({ scopes: ['system'], permission: 'organizations:delete' }),
  params,
  reply: z.object({ organizations: z.int(), ...endedWithTenant }),
})

export const partners = {
  deletion,
  list: endpoint({
    method: 'GET',
    path: '/orgs/partners',
    summary: 'List partners',
    tag,
    access: userAccess({ scopes: ['system'], permission: 'organizations:read' }),
    readQuery: true,
    query: z.strictObject(pageQuery()),
    reply: pageOf(Partner),
  }),
  create: endpoint({
    method: 'POST',
    path: '/orgs/partners',
    idempotencyKey: 'honored',
    summary: 'Create a partner',
    tag,
    access: userAccess({ scopes: ['system'], permission: 'organizations:write' }),
    body: NewPartner,
    status: 201,
    reply: Partner,
    audit: { action: 'partner.create', resource: 'partner' },
    quota: 'PARTNERS',
    errors: ['slug_taken'],
    example: { name: 'Acme IT', slug: 'acme' },
  }),
  me: endpoint({
    method: 'GET',
    path: '/orgs/partners/me',
    summary: 'Show your own partner',
    tag,
    access: userAccess({ scopes: ['partner'], permission: 'organizations:read' }),
    readQuery: true,
    reply: Partner,
  }),
  changeMe: endpoint({
    method: 'PATCH',
    path: '/orgs/partners/me',
    summary: 'Change the name, billing address or settings of your own partner',
    tag,
    access: userAccess({ scopes: ['partner'], permission: 'organizations:write', wholePartner: true }),
    body: OwnPartnerChange,
    reply: Partner,
    audit: { action: 'partner.settings.update', resource: 'partner' },
    example: {
      billingEmail: 'billing@example.com',
      settings: { timezone: 'Europe/Paris', timeFormat: '24h' },
    },
  }),
  show: endpoint({
    method: 'GET',
    path: '/orgs/partners/:id',
    summary: 'Show a partner',
    tag,
    access: userAccess({ scopes: ['system'], permission: 'organizations:read' }),
    params,
    reply: Partner,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/orgs/partners/:id',
    summary: 'Change a partner',
    tag,
    access: userAccess({ scopes: ['system'], permission: 'organizations:write' }),
    params,
    body: PartnerChange,
    reply: Partner,
    audit: { action: 'partner.update', resource: 'partner' },
    errors: ['slug_taken'],
    example: { plan: 'pro', settings: { dateFormat: 'YYYY-MM-DD' } },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/orgs/partners/:id',
    summary: 'Delete a partner with its organizations',
    tag,
    access: userAccess({ scopes: ['system'], permission: 'organizations:delete' }),
    params,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    effect: deletion,
    audit: { action: 'partner.delete', resource: 'partner' },
  }),
}
