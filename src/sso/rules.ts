import { invalid, Problem } from '../core/errors.ts'
import { isNarrowed, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { NewProvider, Provider, ProviderChange } from './contract.ts'
import { defaultMapping, defaultScopes, findPreset, fixedValue } from './presets/rules.ts'

/** What is not of the provider, but of where this service is. */
type Registered = Pick<Provider, 'redirectUri' | 'acsUrl' | 'serviceEntityId'>
export type RedactedProvider = Omit<Provider, keyof Registered>

/** A provider with what it keeps to itself. */
export type ProviderRecord = Omit<RedactedProvider, 'hasClientSecret' | 'unreadable'> & {
  clientSecret: string | null
  /** A client secret that does not open with the keys there are, as it is stored: it stays until one is set. */
  unreadableSecret: string | null
}

export const endpoints = ['authorizationUrl', 'tokenUrl', 'userInfoUrl', 'jwksUrl'] as const
export type Endpoints = { [E in (typeof endpoints)[number]]: string | null }

/** What an issuer says of itself (OpenID Connect Discovery 1.0). */
export type DiscoveredProvider = Endpoints & { issuer: string; tokenAuth: ProviderRecord['tokenAuth'] }

type ProviderInput = Omit<ProviderChange, 'orgId' | 'force'>

/** An empty text clears a field as null does. */
export const clearEmpty = <T extends object>(said: T): T =>
  Object.fromEntries(
    Object.entries(said).map(([field, value]) => [field, value === '' && field !== 'scopes' ? null : value]),
  ) as T

/** Of a provider that nothing was said about. */
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

/** Who configures a provider, and what they may do there. */
export type Configurer = { id: string; permissions: ReadonlySet<string> }

/** What a provider vouches for when somebody configures it: nobody lets in others who may do more than they. */
const permissionCeiling = ({
  id,
  permissions,
}: Configurer): Pick<ProviderRecord, 'vouches' | 'vouchedBy'> => ({
  vouches: [...permissions].sort(),
  vouchedBy: id,
})

/** What has nothing to do with who it speaks for. */
const fieldsWithoutCeiling: readonly string[] = ['name', 'enforceSSO']

/** A provider as a change leaves it, bound to whoever makes it when that changes who it speaks for. */
export function bindToConfigurer(
  before: ProviderRecord,
  after: ProviderRecord,
  by: Configurer,
): ProviderRecord {
  const speaksAnew = changedFields(before, after).some((field) => !fieldsWithoutCeiling.includes(field))
  return speaksAnew ? { ...after, ...permissionCeiling(by) } : after
}

/** The same for one that begins to speak, or goes on at the word of whoever says so. */
export const rebindToConfigurer = (provider: ProviderRecord, by: Configurer): ProviderRecord => ({
  ...provider,
  ...permissionCeiling(by),
})

/** @throws invalid_request when neither the type nor a preset that has one is said */
export function makeProvider(
  wanted: Omit<NewProvider, 'force'> & { orgId: string },
  discovered: DiscoveredProvider | undefined,
  made: { id: string; by: Configurer; now: Instant },
): ProviderRecord {
  const { orgId, ...said } = wanted
  const type = said.type ?? findPreset(said.preset)?.type
  if (type === undefined) {
    throw invalid([{ path: 'body.type', message: 'is required, unless a preset says it' }])
  }
  const { id, by, now } = made
  const stamps = { createdBy: by.id, createdAt: now, updatedAt: now, ...permissionCeiling(by) }
  return applyChange(
    { id, orgId, name: wanted.name, type, status: 'inactive', ...defaultProvider, ...stamps },
    said,
    discovered,
    now,
  )
}

/**
 * A preset that is named fills what is not said. Endpoints that are not said are those that were discovered; those of
 * another issuer never stay, or tokens would be asked for at one and believed of the other.
 * @throws invalid_request when the preset is for another type
 */
export function applyChange(
  before: ProviderRecord,
  change: ProviderInput,
  discovered: DiscoveredProvider | undefined,
  now: Instant,
): ProviderRecord {
  const said = dropUndefined(change)
  const preset = said.preset === before.preset ? undefined : findPreset(said.preset)
  const filled = preset && {
    ...{
      type: preset.type,
      scopes: preset.scopes ?? defaultScopes,
      attributeMapping: preset.attributeMapping,
    },
    ...dropUndefined({ issuer: fixedValue(preset.issuer), ssoUrl: fixedValue(preset.ssoUrl) }),
  }
  const after: ProviderRecord = { ...before, ...filled, ...said, updatedAt: now }
  if (said.clientSecret !== undefined) after.unreadableSecret = null
  if (after.scopes === '') after.scopes = findPreset(after.preset)?.scopes ?? defaultScopes
  checkPreset(after, said)
  checkScopes(after)
  const known = findPreset(after.preset)
  const ofPreset = known && known.issuer === after.issuer ? known : undefined
  if (said.tokenAuth === undefined) {
    if (discovered?.issuer === after.issuer) after.tokenAuth = discovered?.tokenAuth ?? null
    else if (changesIssuer(before, after)) after.tokenAuth = null
  }
  for (const endpoint of endpoints) {
    if (said[endpoint] !== undefined) continue
    if (discovered && discovered.issuer === after.issuer)
      after[endpoint] = discovered[endpoint] ?? ofPreset?.[endpoint] ?? null
    else if (changesIssuer(before, after))
      after[endpoint] = ofPreset?.[endpoint] ?? (before.issuer === null ? before[endpoint] : null)
  }
  return after
}

const dropUndefined = <T extends object>(said: T): T =>
  Object.fromEntries(Object.entries(said).filter(([, value]) => value !== undefined)) as T

function checkPreset({ preset, type }: ProviderRecord, said: ProviderInput): void {
  const known = findPreset(preset)
  if (!known || known.type === type) return
  const path = said.preset === undefined ? 'body.type' : 'body.preset'
  throw invalid([{ path, message: `the preset ${known.id} is for ${known.type}` }])
}

function checkScopes({ type, scopes }: ProviderRecord): void {
  if (type !== 'oidc' || scopes.split(' ').includes('openid')) return
  throw invalid([{ path: 'body.scopes', message: 'must hold openid, or nobody says who signs in' }])
}

/** The issuer that has to be asked for its endpoints: one that was said, or has become the one that counts. */
export function issuerToDiscover(
  before: ProviderRecord | undefined,
  said: ProviderInput,
  after: ProviderRecord,
): string | undefined {
  if (after.type !== 'oidc' || after.issuer === null) return undefined
  const asks = said.issuer !== undefined || before === undefined || changesIssuer(before, after)
  return asks ? after.issuer : undefined
}

/** Whether subjects now come from somebody else: what one issuer calls a subject means nothing at another. */
export const changesIssuer = (before: ProviderRecord, after: ProviderRecord): boolean =>
  issuerKey(before) !== issuerKey(after)

const issuerKey = ({ type, issuer, entityId }: ProviderRecord): string =>
  `${type} ${type === 'oidc' ? issuer : entityId}`

/** Without what it keeps to itself. */
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

/** The fields that a change alters, as they were and as they are; of a secret only that it is another one. */
export function auditDiff(before: ProviderRecord, after: ProviderRecord) {
  const changed = changedFields(before, after)
  const of = (provider: ProviderRecord) => {
    const shown = { ...provider, clientSecret: provider.clientSecret === null ? 'none' : 'set' }
    return Object.fromEntries(changed.map((field) => [field, shown[field]]))
  }
  return { before: of(before), after: of(after), details: { changedFields: changed } }
}

/**
 * Whoever an identity provider vouches for is let in as anyone of the organization: those who see a part of it must
 * not decide that.
 * @throws site_access_denied
 */
export function checkNotNarrowed(scope: Scope): void {
  if (!isNarrowed(scope)) return
  throw new Problem('site_access_denied', 'Your access is limited to some sites or device groups')
}

/** @throws invalid_request */
export function checkSameOrg(provider: ProviderRecord, orgId: string | undefined): void {
  if (orgId === undefined || orgId === provider.orgId) return
  throw invalid([{ path: 'body.orgId', message: 'cannot change: make another provider there' }])
}

/** How long ago an administrator may have signed in with it when it becomes the only way in. */
export const provenWithinSeconds = 24 * 3600

/** @throws invalid_request: nobody locks an organization out by mistake */
export function checkProven(isProven: boolean): void {
  if (isProven) return
  const message =
    'An administrator of the organization has to sign in with this provider first, at most 24 hours before; force: true does without'
  throw invalid([{ path: 'body.enforceSSO', message }], message)
}
