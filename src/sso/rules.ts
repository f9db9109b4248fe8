import { invalid, Problem } from '../core/errors.ts'
import { withoutUndefined } from '../core/json.ts'
import { leadsElsewhere } from '../core/outbound.ts'
import { isNarrowed, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { narrowedAccess } from '../identity/rules.ts'
import type { NewProvider, Provider, ProviderChange } from './contract.ts'
import { defaultMapping, defaultScopes, findPreset, fixedValue } from './presets/rules.ts'

/** Fields that describe this service, not the provider. */
type Registered = Pick<Provider, 'redirectUri' | 'acsUrl' | 'serviceEntityId'>
export type RedactedProvider = Omit<Provider, keyof Registered>

/** A provider including its secrets. */
export type ProviderRecord = Omit<RedactedProvider, 'hasClientSecret' | 'unreadable'> & {
  clientSecret: string | null
  /** A stored client secret that cannot be decrypted with the available keys; it stays until a new one is set. */
  unreadableSecret: string | null
}

export const endpoints = ['authorizationUrl', 'tokenUrl', 'userInfoUrl', 'jwksUrl'] as const
export type Endpoints = { [E in (typeof endpoints)[number]]: string | null }

/** Values from an issuer's discovery document (OpenID Connect Discovery 1.0). */
export type DiscoveredProvider = Endpoints & { issuer: string; tokenAuth: ProviderRecord['tokenAuth'] }

type ProviderInput = Omit<ProviderChange, 'orgId' | 'force'>

/** An empty text clears a field as null does. */
export const clearEmpty = <T extends object>(input: T): T =>
  Object.fromEntries(
    Object.entries(input).map(([field, value]) => [field, value === '' && field !== 'scopes' ? null : value]),
  ) as T

/** Defaults of a new provider. */
const defaultProvider = {
  preset: null,
  issuer: null,
  clientId: null,
  clientSecret: null,
  unreadableSecret: null,
  tokenAuth: null,
  authorizationUrl: null,
  tokenUrl: null,
  userInfoUrl: null,
  jwksUrl: null,
  scopes: defaultScopes,
  entityId: null,
  ssoUrl: null,
  certificate: null,
  nameIdFormat: null,
  forceAuthn: false,
  signRequests: false,
  attributeMapping: defaultMapping,
  autoProvision: true,
  defaultRoleId: null,
  allowedDomains: null,
  enforceSSO: false,
} satisfies Partial<ProviderRecord>

/** The person who configures a provider, with their permissions there. */
export type Configurer = { id: string; permissions: ReadonlySet<string> }

/**
 * Permissions that a provider may assert: those of the person who configures it, so that they cannot let in
 * others with more permissions than they have.
 */
const permissionCeiling = ({
  id,
  permissions,
}: Configurer): Pick<ProviderRecord, 'vouches' | 'vouchedBy'> => ({
  vouches: [...permissions].sort(),
  vouchedBy: id,
})

/** Fields that do not affect whom the provider can assert. */
const fieldsWithoutCeiling: readonly string[] = ['name', 'enforceSSO']

/**
 * The provider after a change, with its permissions limited to those of the configurer if the change affects
 * whom it can assert.
 */
export function bindToConfigurer(
  before: ProviderRecord,
  after: ProviderRecord,
  by: Configurer,
): ProviderRecord {
  const speaksAnew = changedFields(before, after).some((field) => !fieldsWithoutCeiling.includes(field))
  return speaksAnew ? { ...after, ...permissionCeiling(by) } : after
}

/** The same for a provider that is activated or confirmed. */
export const rebindToConfigurer = (provider: ProviderRecord, by: Configurer): ProviderRecord => ({
  ...provider,
  ...permissionCeiling(by),
})

/** @throws invalid_request when neither the type nor a preset with one is given */
export function makeProvider(
  wanted: Omit<NewProvider, 'force'> & { orgId: string },
  discovered: DiscoveredProvider | undefined,
  made: { id: string; by: Configurer; now: Instant },
): ProviderRecord {
  const { orgId, ...input } = wanted
  const type = input.type ?? findPreset(input.preset)?.type
  if (type === undefined) {
    throw invalid([{ path: 'body.type', message: 'is required, unless a preset says it' }])
  }
  const { id, by, now } = made
  const stamps = { createdBy: by.id, createdAt: now, updatedAt: now, ...permissionCeiling(by) }
  return applyChange(
    { id, orgId, name: wanted.name, type, status: 'inactive', ...defaultProvider, ...stamps },
    input,
    discovered,
    now,
  )
}

/**
 * A given preset fills in missing fields. Missing endpoints come from discovery; endpoints of another issuer
 * are never kept: otherwise tokens would be requested from one issuer and accepted from the other.
 * @throws invalid_request when the preset is for another type
 */
export function applyChange(
  before: ProviderRecord,
  change: ProviderInput,
  discovered: DiscoveredProvider | undefined,
  now: Instant,
): ProviderRecord {
  const input = withoutUndefined(change)
  const preset = input.preset === before.preset ? undefined : findPreset(input.preset)
  const filled = preset && {
    type: preset.type,
    scopes: preset.scopes ?? defaultScopes,
    attributeMapping: preset.attributeMapping,
    ...withoutUndefined({ issuer: fixedValue(preset.issuer), ssoUrl: fixedValue(preset.ssoUrl) }),
  }
  const after: ProviderRecord = { ...before, ...filled, ...input, updatedAt: now }
  if (input.clientSecret !== undefined) after.unreadableSecret = null
  if (after.scopes === '') after.scopes = findPreset(after.preset)?.scopes ?? defaultScopes
  checkPreset(after, input)
  checkScopes(after)
  const known = findPreset(after.preset)
  const ofPreset = known && known.issuer === after.issuer ? known : undefined
  if (input.tokenAuth === undefined) {
    if (discovered?.issuer === after.issuer) after.tokenAuth = discovered?.tokenAuth ?? null
    else if (changesIssuer(before, after)) after.tokenAuth = null
  }
  for (const endpoint of endpoints) {
    if (input[endpoint] !== undefined) continue
    if (discovered && discovered.issuer === after.issuer)
      after[endpoint] = discovered[endpoint] ?? ofPreset?.[endpoint] ?? null
    else if (changesIssuer(before, after))
      after[endpoint] = ofPreset?.[endpoint] ?? (before.issuer === null ? before[endpoint] : null)
  }
  checkSecretStays(before, after, input)
  return after
}

/** The secret is displayed to nobody: whoever changes where it is sent must not receive it there. */
function checkSecretStays(before: ProviderRecord, after: ProviderRecord, input: ProviderInput): void {
  const hasSecret = before.clientSecret !== null || before.unreadableSecret !== null
  if (!hasSecret || input.clientSecret !== undefined || after.tokenUrl === null) return
  // Discovery of the same issuer says where that one wants it. Before that, it was given for the issuer.
  const isNamed = input.tokenUrl !== undefined || changesIssuer(before, after)
  if (!isNamed || !leadsElsewhere(after.tokenUrl, before.tokenUrl ?? before.issuer ?? '')) return
  const message = 'must be sent with a token URL of another scheme, host or port: it is secret'
  throw invalid([{ path: 'body.clientSecret', message }])
}

function checkPreset({ preset, type }: ProviderRecord, input: ProviderInput): void {
  const known = findPreset(preset)
  if (!known || known.type === type) return
  const path = input.preset === undefined ? 'body.type' : 'body.preset'
  throw invalid([{ path, message: `the preset ${known.id} is for ${known.type}` }])
}

function checkScopes({ type, scopes }: ProviderRecord): void {
  if (type !== 'oidc' || scopes.split(' ').includes('openid')) return
  throw invalid([{ path: 'body.scopes', message: 'must hold openid, or nobody says who signs in' }])
}

/** The issuer to run discovery on: one that was given, or has now become effective. */
export function issuerToDiscover(
  before: ProviderRecord | undefined,
  input: ProviderInput,
  after: ProviderRecord,
): string | undefined {
  if (after.type !== 'oidc' || after.issuer === null) return undefined
  const asks = input.issuer !== undefined || before === undefined || changesIssuer(before, after)
  return asks ? after.issuer : undefined
}

/** Whether subjects now come from another issuer: a subject of one issuer means nothing at another. */
export const changesIssuer = (before: ProviderRecord, after: ProviderRecord): boolean =>
  issuerKey(before) !== issuerKey(after)

const issuerKey = ({ type, issuer, entityId }: ProviderRecord): string =>
  `${type} ${type === 'oidc' ? issuer : entityId}`

/** Removes the secrets. */
export function redactProvider(provider: ProviderRecord): RedactedProvider {
  const { clientSecret, unreadableSecret, ...rest } = provider
  return {
    ...rest,
    hasClientSecret: clientSecret !== null || unreadableSecret !== null,
    unreadable: unreadableSecret === null ? [] : ['clientSecret'],
  }
}

function changedFields(before: ProviderRecord, after: ProviderRecord): (keyof ProviderRecord)[] {
  const { updatedAt: _, unreadableSecret: __, ...all } = after
  return (Object.keys(all) as (keyof ProviderRecord)[]).filter(
    (field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]),
  )
}

/** The changed fields before and after; of a secret only that it changed. */
export function auditDiff(before: ProviderRecord, after: ProviderRecord) {
  const changed = changedFields(before, after)
  const of = (provider: ProviderRecord) => {
    const shown = { ...provider, clientSecret: provider.clientSecret === null ? 'none' : 'set' }
    return Object.fromEntries(changed.map((field) => [field, shown[field]]))
  }
  return { before: of(before), after: of(after), details: { changedFields: changed } }
}

/**
 * An identity provider can sign its users in as any member of the organization, so a user limited to a part of
 * it must not configure one.
 * @throws site_access_denied
 */
export function checkNotNarrowed(scope: Scope): void {
  if (!isNarrowed(scope)) return
  throw new Problem('site_access_denied', narrowedAccess)
}

/** @throws invalid_request */
export function checkSameOrg(provider: ProviderRecord, orgId: string | undefined): void {
  if (orgId === undefined || orgId === provider.orgId) return
  throw invalid([{ path: 'body.orgId', message: 'cannot change: make another provider there' }])
}

/** How recently an administrator must have signed in with it before it becomes the only way in. */
export const provenWithinSeconds = 24 * 3600

/** Prevents locking an organization out by mistake. @throws invalid_request */
export function checkProven(isProven: boolean): void {
  if (isProven) return
  const message =
    'An administrator of the organization has to sign in with this provider first, at most 24 hours before; force: true does without'
  throw invalid([{ path: 'body.enforceSSO', message }], message)
}
