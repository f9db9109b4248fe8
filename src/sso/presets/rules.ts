import type { AttributeMapping, Preset } from './contract.ts'

export const defaultScopes = 'openid profile email'

/** Mapping of a provider without a preset. */
export const defaultMapping: AttributeMapping = { email: 'email', name: 'name' }

const oidcMapping: AttributeMapping = {
  ...defaultMapping,
  firstName: 'given_name',
  lastName: 'family_name',
}

const microsoft = (groups: string): AttributeMapping => ({
  email: 'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress',
  name: 'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/name',
  firstName: 'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/givenname',
  lastName: 'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/surname',
  groups,
})

type Id = Preset['id']
type Endpoints = Pick<Preset, 'authorizationUrl' | 'tokenUrl' | 'userInfoUrl' | 'jwksUrl'>

const discovered: Endpoints = { authorizationUrl: null, tokenUrl: null, userInfoUrl: null, jwksUrl: null }

const oidc = (id: Id, name: string, issuer: string, more: Partial<Preset> = {}): Preset => ({
  id,
  name,
  type: 'oidc',
  issuer,
  ...discovered,
  scopes: defaultScopes,
  entityId: null,
  ssoUrl: null,
  metadataUrl: null,
  attributeMapping: oidcMapping,
  certificateInstructions: null,
  ...more,
})

type Saml = Pick<
  Preset,
  'entityId' | 'ssoUrl' | 'metadataUrl' | 'attributeMapping' | 'certificateInstructions'
>

const saml = (id: Id, name: string, its: Saml): Preset => ({
  id,
  name,
  type: 'saml',
  issuer: null,
  ...discovered,
  scopes: null,
  ...its,
})

/** Known settings of common providers. */
export const presets: readonly Preset[] = [
  oidc('azure-ad', 'Microsoft Entra ID (Azure AD)', 'https://login.microsoftonline.com/{tenant}/v2.0'),
  oidc('okta', 'Okta', 'https://{domain}.okta.com', {
    scopes: `${defaultScopes} groups`,
    attributeMapping: { ...oidcMapping, groups: 'groups' },
  }),
  oidc('google', 'Google Workspace', 'https://accounts.google.com', {
    authorizationUrl: 'https://accounts.google.com/o/oauth2/v2/auth',
    tokenUrl: 'https://oauth2.googleapis.com/token',
    userInfoUrl: 'https://openidconnect.googleapis.com/v1/userinfo',
    jwksUrl: 'https://www.googleapis.com/oauth2/v3/certs',
  }),
  oidc('auth0', 'Auth0', 'https://{domain}.auth0.com'),
  saml('azure-ad-saml', 'Microsoft Entra ID (Azure AD), SAML', {
    entityId: 'https://sts.windows.net/{tenant}/',
    ssoUrl: 'https://login.microsoftonline.com/{tenant}/saml2',
    metadataUrl:
      'https://login.microsoftonline.com/{tenant}/federationmetadata/2007-06/federationmetadata.xml',
    attributeMapping: microsoft('http://schemas.microsoft.com/ws/2008/06/identity/claims/groups'),
    certificateInstructions:
      'Enterprise applications, your application, Single sign-on, SAML Certificates: download Certificate (Base64).',
  }),
  saml('okta-saml', 'Okta, SAML', {
    entityId: 'http://www.okta.com/{appId}',
    ssoUrl: 'https://{domain}.okta.com/app/{appId}/sso/saml',
    metadataUrl: 'https://{domain}.okta.com/app/{appId}/sso/saml/metadata',
    attributeMapping: {
      ...defaultMapping,
      firstName: 'firstName',
      lastName: 'lastName',
      groups: 'groups',
    },
    certificateInstructions:
      'Applications, your application, Sign On, SAML Signing Certificates: download the active one.',
  }),
  saml('onelogin-saml', 'OneLogin, SAML', {
    entityId: 'https://app.onelogin.com/saml/metadata/{appId}',
    ssoUrl: 'https://{domain}.onelogin.com/trust/saml2/http-post/sso/{appId}',
    metadataUrl: 'https://{domain}.onelogin.com/saml/metadata/{appId}',
    // It sends no full name; the parts replace it.
    attributeMapping: {
      email: 'User.email',
      name: 'User.name',
      firstName: 'User.FirstName',
      lastName: 'User.LastName',
    },
    certificateInstructions:
      'Applications, your application, SSO, X.509 Certificate, View Details: download it as X.509 PEM.',
  }),
  saml('adfs-saml', 'Active Directory Federation Services, SAML', {
    entityId: 'http://{adfs-server}/adfs/services/trust',
    ssoUrl: 'https://{adfs-server}/adfs/ls',
    metadataUrl: 'https://{adfs-server}/FederationMetadata/2007-06/FederationMetadata.xml',
    attributeMapping: microsoft('http://schemas.xmlsoap.org/claims/Group'),
    certificateInstructions:
      'AD FS Management, Service, Certificates, Token-signing, View Certificate, Details: copy to file as Base-64 X.509.',
  }),
  saml('google-saml', 'Google Workspace, SAML', {
    entityId: 'https://accounts.google.com/o/saml2?idpid={idpId}',
    ssoUrl: 'https://accounts.google.com/o/saml2/idp?idpid={idpId}',
    metadataUrl: null,
    attributeMapping: {
      ...defaultMapping,
      firstName: 'first_name',
      lastName: 'last_name',
    },
    certificateInstructions:
      'Apps, Web and mobile apps, your application, Download metadata: the certificate.',
  }),
]

export const findPreset = (id: string | null | undefined): Preset | undefined =>
  presets.find((one) => one.id === id)

/** The value of a preset; undefined where the administrator has to fill in a part. */
export const fixedValue = (template: string | null | undefined): string | undefined =>
  template == null || template.includes('{') ? undefined : template
