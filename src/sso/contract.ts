import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../core/endpoint.ts'
import { pageOf, pageQuery } from '../core/page.ts'
import { idOf, instant, text } from '../core/schema.ts'
import { fields, nameIdFormat, tokenAuth } from './fields/contract.ts'
import { AttributeMapping, Preset, providerType } from './presets/contract.ts'

export const providerStatus = z.enum(['inactive', 'testing', 'active'])

export const Provider = z
  .object({
    id: idOf('sso_provider'),
    orgId: idOf('organization'),
    name: z.string(),
    type: providerType,
    status: providerStatus,
    preset: z.string().nullable(),
    issuer: z.string().nullable(),
    clientId: z.string().nullable(),
    hasClientSecret: z.boolean(),
    unreadable: z
      .array(z.enum(['clientSecret']))
      .describe('What cannot be decrypted with the keys of the service: set it anew; nobody signs in before'),
    tokenAuth: tokenAuth.nullable(),
    authorizationUrl: z.string().nullable(),
    tokenUrl: z.string().nullable(),
    userInfoUrl: z.string().nullable(),
    jwksUrl: z.string().nullable(),
    scopes: z.string(),
    entityId: z.string().nullable(),
    ssoUrl: z.string().nullable(),
    certificate: z.string().nullable().describe('PEM'),
    nameIdFormat: nameIdFormat.nullable(),
    forceAuthn: z.boolean(),
    signRequests: z.boolean(),
    attributeMapping: AttributeMapping,
    autoProvision: z.boolean(),
    defaultRoleId: idOf('role').nullable(),
    allowedDomains: z.string().nullable().describe('With commas between them; null: all'),
    enforceSSO: z.boolean(),
    redirectUri: z
      .string()
      .nullable()
      .describe('To be registered at a provider of OpenID Connect; null: of SAML, or without PUBLIC_URL'),
    acsUrl: z
      .string()
      .nullable()
      .describe('To be registered at a provider of SAML; null: of OpenID Connect, or without PUBLIC_URL'),
    serviceEntityId: z.string().nullable().describe('The same: its audience'),
    vouches: z
      .array(z.string())
      .describe('Nobody signs in with it who may do more; the permissions of whoever configured it last'),
    vouchedBy: z.guid().nullable().describe('Who that was'),
    createdBy: z.guid(),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'SsoProvider' })
export type Provider = z.output<typeof Provider>

export const NewProvider = z.strictObject({
  orgId: idOf('organization').optional().describe('Organization it is for; inferred in organization scope'),
  name: text(255, 1).describe('What people know it as'),
  type: providerType.optional().describe('OpenID Connect or SAML; by default as the preset says'),
  ...fields,
})
export type NewProvider = z.output<typeof NewProvider>

export const ProviderChange = z.strictObject({
  orgId: idOf('organization').optional().describe('Its organization, which cannot change'),
  name: text(255, 1).optional().describe('What people know it as'),
  type: providerType.optional().describe('OpenID Connect or SAML'),
  ...fields,
})
export type ProviderChange = z.output<typeof ProviderChange>

const tag = 'SSO'
const reads = userAccess({ permission: 'organizations:read' })
const writes = userAccess({ permission: 'organizations:write', mfa: true })
const readsInFiles = userAccess({ permission: 'organizations:read', workload: 'files' })
const writesInFiles = userAccess({ permission: 'organizations:write', mfa: true, workload: 'files' })
const params = z.strictObject({ id: idOf('sso_provider') })
const warning = z.string().optional()
const changeReply = z.object({
  data: Provider,
  warning: warning.describe('That discovery failed, and why; that it does not vouch for somebody'),
})
const audited = (action: string) => ({ action, resource: 'sso_provider' as const })

export const sso = {
  presets: endpoint({
    method: 'GET',
    path: '/sso/presets',
    summary: 'List the identity providers that much is known about',
    tag,
    access: userAccess(),
    reply: z.object({ data: z.array(Preset) }),
  }),
  check: endpoint({
    method: 'GET',
    path: '/sso/check/:orgId',
    summary: 'Whether the people of an organization sign in with an identity provider',
    tag,
    access: publicAccess,
    params: z.strictObject({ orgId: idOf('organization') }),
    reply: z.object({
      ssoEnabled: z.boolean(),
      provider: Provider.pick({ id: true, name: true, type: true }).optional(),
      enforceSSO: z.boolean().optional().describe('Passwords are not accepted'),
      loginUrl: z.string().optional().describe('Path'),
    }),
  }),
}

export const ssoProviders = {
  list: endpoint({
    method: 'GET',
    path: '/sso/providers',
    summary: 'List SSO providers, oldest first: of several active ones of an organization the first is used',
    tag,
    access: readsInFiles,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only providers of this organization'),
      ...pageQuery(),
    }),
    reply: pageOf(Provider),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/sso/providers',
    idempotencyKey: 'honored',
    summary: 'Create an SSO provider, inactive; discovery finds what its issuer publishes',
    tag,
    access: writesInFiles,
    body: NewProvider,
    status: 201,
    reply: changeReply,
    audit: audited('sso.provider.create'),
    quota: 'SSO_PROVIDERS',
    errors: ['org_access_denied', 'site_access_denied'],
    example: {
      name: 'Okta',
      type: 'oidc',
      preset: 'okta',
      issuer: 'https://blue-bakery.okta.com',
      clientId: '0oa1b2c3d4e5F6g7h8i9',
      clientSecret: 'oXq0yJdl3Kp7mZr1sT9vWbA4cNfE6hGu',
      allowedDomains: 'blue-bakery.example.com',
    },
  }),
  show: endpoint({
    method: 'GET',
    path: '/sso/providers/:id',
    summary: 'Show an SSO provider, without its secret',
    tag,
    access: reads,
    params,
    reply: z.object({
      data: Provider,
      membersBeyond: z
        .int()
        .describe('Members who may do more than it vouches for: they do not sign in with it'),
      warning: warning.describe('That there are such'),
    }),
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/sso/providers/:id',
    summary: 'Change an SSO provider; another issuer is looked up, and known subjects are forgotten',
    tag,
    access: writesInFiles,
    params,
    body: ProviderChange,
    reply: changeReply,
    audit: audited('sso.provider.update'),
    errors: ['org_access_denied', 'site_access_denied'],
    example: { name: 'Okta, head office', allowedDomains: 'blue-bakery.example.com, bakery.example.org' },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/sso/providers/:id',
    summary: 'Delete an SSO provider, its sign-ins under way and who its subjects are here',
    tag,
    access: writesInFiles,
    params,
    reply: z.object({ success: z.literal(true) }),
    audit: audited('sso.provider.delete'),
    errors: ['site_access_denied'],
  }),
  setStatus: endpoint({
    method: 'POST',
    path: '/sso/providers/:id/status',
    idempotencyKey: 'honored',
    summary: 'Set the status of an SSO provider; people sign in with an active one, which has to be complete',
    tag,
    access: writesInFiles,
    params,
    body: z.strictObject({ status: providerStatus.describe('Its status from now on') }),
    reply: z.object({ data: Provider, warning: warning.describe('That it does not vouch for somebody') }),
    audit: audited('sso.provider.status.update'),
    errors: ['site_access_denied'],
    example: { status: 'testing' },
  }),
  test: endpoint({
    method: 'POST',
    path: '/sso/providers/:id/test',
    idempotencyKey: { refused: 'reading' },
    summary: 'Ask the issuer of an SSO provider what it publishes, and check that; nothing changes',
    tag,
    access: writes,
    params,
    reply: z.object({
      success: z.literal(true),
      message: z.string(),
      discovery: z
        .object({
          issuer: z.string(),
          authorizationEndpoint: z.string(),
          tokenEndpoint: z.string(),
          userInfoEndpoint: z.string().nullable(),
        })
        .optional(),
      warning: warning.describe('That it does not vouch for somebody'),
    }),
    audit: audited('sso.provider.test'),
    errors: ['oidc_discovery_failed'],
  }),
}
