import { z } from 'zod'
import { trimmed } from '../../core/schema.ts'

export const providerType = z.enum(['oidc', 'saml'])

/** OpenID Connect presets first, then SAML. */
export const presetIds = [
  'azure-ad',
  'okta',
  'google',
  'auth0',
  'azure-ad-saml',
  'okta-saml',
  'onelogin-saml',
  'adfs-saml',
  'google-saml',
]

const claim = trimmed(255, 1)

/** The claims of the identity provider that hold each field. */
export const AttributeMapping = z.strictObject({
  email: claim.describe('Claim that holds the e-mail address'),
  name: claim.describe('Claim that holds the name'),
  firstName: claim.optional().describe('Claims of the parts of the name, for when there is no whole one'),
  lastName: claim.optional(),
  groups: claim.optional().describe('Claim that holds a list of group names'),
})
export type AttributeMapping = z.output<typeof AttributeMapping>

const template = z.string().nullable()

/** Parts in braces are for the administrator to fill in. */
export const Preset = z
  .object({
    id: z.enum(presetIds),
    name: z.string(),
    type: providerType,
    issuer: template,
    authorizationUrl: template,
    tokenUrl: template,
    userInfoUrl: template,
    jwksUrl: template,
    scopes: z.string().nullable(),
    entityId: template,
    ssoUrl: template,
    metadataUrl: template,
    attributeMapping: AttributeMapping,
    certificateInstructions: z.string().nullable().describe('Where a SAML provider shows its certificate'),
  })
  .meta({ id: 'SsoPreset' })
export type Preset = z.output<typeof Preset>
