import { z } from 'zod'
import { safeParse, secret, text, trimmed } from '../../core/schema.ts'
import { AttributeMapping, presetIds } from '../presets/contract.ts'

/** The fault of an identity provider's address, as far as it shows without a DNS lookup. */
export function urlFault(value: string, ofIssuer: boolean): string | undefined {
  if (value === '') return undefined
  const hole = /\{[^}]*\}?/.exec(value)?.[0]
  if (hole !== undefined) return `fill in ${hole} with what is yours`
  if (/[\s\\]/.test(value) || !URL.canParse(value)) return 'must be a URL'
  const url = new URL(value)
  if (url.protocol !== 'https:') return 'must use HTTPS'
  if (url.username !== '' || url.password !== '') return 'must not hold a user name or password'
  if (value.includes('#')) return 'must not have a fragment'
  if (ofIssuer && value.includes('?')) return 'must not have a query: it is an issuer'
  return undefined
}

/** Each scope once. */
export const normalizeScopes = (value: string): string =>
  [...new Set(value.split(/\s+/).filter((scope) => scope !== ''))].join(' ')

/** Lower case, without the space around them, each once; international names as DNS spells them. */
export const normalizeDomains = (value: string): string =>
  [...new Set(splitList(value).map((domain) => toAscii(domain) ?? domain))].join(',')

export function domainFault(value: string): string | undefined {
  const wrong = splitList(value).find((domain) => toAscii(domain) === undefined)
  return wrong === undefined ? undefined : `"${wrong}" is not a domain, such as example.com`
}

const splitList = (value: string): string[] =>
  value.split(',').flatMap((one) => one.trim().toLowerCase() || [])

function toAscii(said: string): string | undefined {
  const domain = said.replace(/^@/, '')
  if (/[\s/:?#@\\[\]%*]/.test(domain) || !URL.canParse(`https://${domain}/`)) return undefined
  const { hostname } = new URL(`https://${domain}/`)
  const isName = /^(?!.*\.\d+$)([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(
    hostname,
  )
  return isName && hostname.length <= 253 && !/^\d+$/.test(hostname) ? hostname : undefined
}

const address = (max: number, ofIssuer = false) =>
  text(max)
    .refine((value) => urlFault(value, ofIssuer) === undefined, {
      error: ({ input }) => urlFault(String(input), ofIssuer),
    })
    .nullable()
    .optional()

const isId = (value: string): boolean => value === '' || safeParse(z.guid(), value).success

/** How the client authenticates at the token endpoint (RFC 6749, 2.3.1). */
export const tokenAuth = z.enum(['client_secret_basic', 'client_secret_post'])

/** Formats of identifiers that do not change between sign-ins (SAML core 8.3). */
export const nameIdFormat = z.enum(['email', 'persistent', 'unspecified', 'windows'])

/** Fields of a provider that can be set on creation and later; an empty text or null clears a field. */
export const fields = {
  preset: z
    .enum(presetIds, { error: `must be one of ${presetIds.join(', ')}` })
    .nullable()
    .optional()
    .describe('What is not said is as in this preset; svc sso presets shows them'),
  issuer: address(500, true).describe('Issuer of an OpenID Connect provider; discovery finds its endpoints'),
  clientId: trimmed(255).nullable().optional().describe('What the provider calls this service'),
  clientSecret: secret(text(2000)).nullable().optional().describe('Secret of that client; write-only'),
  tokenAuth: tokenAuth
    .nullable()
    .optional()
    .describe('How the secret is shown to the provider; mostly found by discovery'),
  authorizationUrl: address(500).describe('Where people sign in; mostly found by discovery'),
  tokenUrl: address(500).describe('Where codes become tokens; mostly found by discovery'),
  userInfoUrl: address(500).describe('What tells about a person; mostly found by discovery'),
  jwksUrl: address(500).describe('Keys that sign ID tokens; mostly found by discovery'),
  scopes: text(500)
    .overwrite(normalizeScopes)
    .refine(
      (value) => /^[\x21\x23-\x5b\x5d-\x7e ]*$/.test(value),
      'must be OAuth scopes, with spaces between them',
    )
    .optional()
    .describe('What is asked for, with spaces between; "openid profile email" by default'),
  entityId: text(1024).nullable().optional().describe('Entity id of a SAML provider'),
  ssoUrl: address(500).describe('Where a SAML provider takes sign-ins'),
  certificate: text(20_000)
    .nullable()
    .optional()
    .meta({ file: true })
    .describe('Certificate that a SAML provider signs with, PEM'),
  nameIdFormat: nameIdFormat
    .nullable()
    .optional()
    .describe('How a SAML provider shall name people; by default as it is set there'),
  forceAuthn: z
    .boolean()
    .optional()
    .describe('Whoever is signed in at a SAML provider signs in there again; the answer has to say when'),
  signRequests: z
    .boolean()
    .optional()
    .describe('Sign what a SAML provider is asked, with the key in the metadata of this service'),
  attributeMapping: AttributeMapping.optional().describe('Which claim says what: email and name at least'),
  autoProvision: z.boolean().optional().describe('Make an account for people who have none; on by default'),
  defaultRoleId: text(36)
    .refine(isId, 'must be a UUID')
    .meta({ format: 'uuid', resource: 'role' })
    .nullable()
    .optional()
    .describe('Role of the people it makes accounts for, of the organization'),
  allowedDomains: text(1000)
    .overwrite(normalizeDomains)
    .refine((value) => domainFault(value) === undefined, { error: ({ input }) => domainFault(String(input)) })
    .nullable()
    .optional()
    .describe('Only people with an e-mail address of these domains, with commas between; all by default'),
  enforceSSO: z
    .boolean()
    .optional()
    .meta({ flag: 'enforce-sso' })
    .describe('No more passwords in the organization'),
  force: z
    .boolean()
    .optional()
    .describe('Enforce it although no administrator has signed in with it in the last 24 hours'),
}
