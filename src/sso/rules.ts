import { invalid, Problem } from '../core/errors.ts'
import { isNarrowed, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { NewProvider, Provider, ProviderChange } from './contract.ts'
import { fixedIn, presetOf, usualMapping, usualScopes } from './presets/rules.ts'

/** What is not of the provider, but of where this service is. */
type Registered = Pick<Provider, 'redirectUri' | 'acsUrl' | 'serviceEntityId'>
export type Discreet = Omit<Provider, keyof Registered>

/** A provider with what it keeps to itself. */
export type Held = Omit<Discreet, 'hasClientSecret' | 'unreadable'> & {
  clientSecret: string | null
  /** A client secret that does not open with the keys there are, as it is stored: it stays until one is set. */
  unreadableSecret: string | null
}

export const endpoints = ['authorizationUrl', 'tokenUrl', 'userInfoUrl', 'jwksUrl'] as const
export type Endpoints = { [E in (typeof endpoints)[number]]: string | null }

/** What an issuer says of itself (OpenID Connect Discovery 1.0). */
export type Discovered = Endpoints & { issuer: string; tokenAuth: Held['tokenAuth'] }

type Said = Omit<ProviderChange, 'orgId' | 'force'>

/** An empty text clears a field as null does. */
export const cleared = <T extends object>(said: T): T =>
  Object.fromEntries(
    Object.entries(said).map(([field, value]) => [field, value === '' && field !== 'scopes' ? null : value]),
  ) as T

/** Of a provider that nothing was said about. */
const blank = {
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
  scopes: usualScopes,
  entityId: null,
  ssoUrl: null,
  certificate: null,
  nameIdFormat: null,
  forceAuthn: false,
  signRequests: false,
  attributeMapping: usualMapping,
  autoProvision: true,
  defaultRoleId: null,
  allowedDomains: null,
  enforceSSO: false,
} satisfies Partial<Held>

/** Who configures a provider, and what they may do there. */
export type Configurer = { id: string; permissions: ReadonlySet<string> }

/** What a provider vouches for when somebody configures it: nobody lets in others who may do more than they. */
const bondOf = ({ id, permissions }: Configurer): Pick<Held, 'vouches' | 'vouchedBy'> => ({
  vouches: [...permissions].sort(),
  vouchedBy: id,
})

/** What has nothing to do with who it speaks for. */
const harmless: readonly string[] = ['name', 'enforceSSO']

/** A provider as a change leaves it, bound to whoever makes it when that changes who it speaks for. */
export function bound(before: Held, after: Held, by: Configurer): Held {
  const speaksAnew = changedIn(before, after).some((field) => !harmless.includes(field))
  return speaksAnew ? { ...after, ...bondOf(by) } : after
}

/** The same for one that begins to speak, or goes on at the word of whoever says so. */
export const vouchedAnew = (provider: Held, by: Configurer): Held => ({ ...provider, ...bondOf(by) })

/** @throws invalid_request when neither the type nor a preset that has one is said */
export function makeProvider(
  wanted: Omit<NewProvider, 'force'> & { orgId: string },
  discovered: Discovered | undefined,
  made: { id: string; by: Configurer; now: Instant },
): Held {
  const { orgId, ...said } = wanted
  const type = said.type ?? presetOf(said.preset)?.type
  if (type === undefined) {
    throw invalid([{ path: 'body.type', message: 'is required, unless a preset says it' }])
  }
  const { id, by, now } = made
  const stamps = { createdBy: by.id, createdAt: now, updatedAt: now, ...bondOf(by) }
  return applied(
    { id, orgId, name: wanted.name, type, status: 'inactive', ...blank, ...stamps },
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
export function applied(before: Held, change: Said, discovered: Discovered | undefined, now: Instant): Held {
  const said = definedIn(change)
  const preset = said.preset === before.preset ? undefined : presetOf(said.preset)
  const filled = preset && {
    ...{ type: preset.type, scopes: preset.scopes ?? usualScopes, attributeMapping: preset.attributeMapping },
    ...definedIn({ issuer: fixedIn(preset.issuer), ssoUrl: fixedIn(preset.ssoUrl) }),
  }
  const after: Held = { ...before, ...filled, ...said, updatedAt: now }
  if (said.clientSecret !== undefined) after.unreadableSecret = null
  if (after.scopes === '') after.scopes = presetOf(after.preset)?.scopes ?? usualScopes
  checkPreset(after, said)
  checkScopes(after)
  const known = presetOf(after.preset)
  const ofPreset = known && known.issuer === after.issuer ? known : undefined
  if (said.tokenAuth === undefined) {
    if (discovered?.issuer === after.issuer) after.tokenAuth = discovered?.tokenAuth ?? null
    else if (isElsewhere(before, after)) after.tokenAuth = null
  }
  for (const endpoint of endpoints) {
    if (said[endpoint] !== undefined) continue
    if (discovered && discovered.issuer === after.issuer)
      after[endpoint] = discovered[endpoint] ?? ofPreset?.[endpoint] ?? null
    else if (isElsewhere(before, after))
      after[endpoint] = ofPreset?.[endpoint] ?? (before.issuer === null ? before[endpoint] : null)
  }
  return after
}

const definedIn = <T extends object>(said: T): T =>
  Object.fromEntries(Object.entries(said).filter(([, value]) => value !== undefined)) as T

function checkPreset({ preset, type }: Held, said: Said): void {
  const known = presetOf(preset)
  if (!known || known.type === type) return
  const path = said.preset === undefined ? 'body.type' : 'body.preset'
  throw invalid([{ path, message: `the preset ${known.id} is for ${known.type}` }])
}

function checkScopes({ type, scopes }: Held): void {
  if (type !== 'oidc' || scopes.split(' ').includes('openid')) return
  throw invalid([{ path: 'body.scopes', message: 'must hold openid, or nobody says who signs in' }])
}

/** The issuer that has to be asked for its endpoints: one that was said, or has become the one that counts. */
export function toDiscover(before: Held | undefined, said: Said, after: Held): string | undefined {
  if (after.type !== 'oidc' || after.issuer === null) return undefined
  const asks = said.issuer !== undefined || before === undefined || isElsewhere(before, after)
  return asks ? after.issuer : undefined
}

/** Whether subjects now come from somebody else: what one issuer calls a subject means nothing at another. */
export const isElsewhere = (before: Held, after: Held): boolean => whoSays(before) !== whoSays(after)

const whoSays = ({ type, issuer, entityId }: Held): string => `${type} ${type === 'oidc' ? issuer : entityId}`

/** Without what it keeps to itself. */
export function discreet(provider: Held): Discreet {
  const { clientSecret, unreadableSecret, ...rest } = provider
  return {
    ...rest,
    hasClientSecret: clientSecret !== null || unreadableSecret !== null,
    unreadable: unreadableSecret === null ? [] : ['clientSecret'],
  }
}

function changedIn(before: Held, after: Held): (keyof Held)[] {
  const { updatedAt: _, unreadableSecret: __, ...all } = after
  return (Object.keys(all) as (keyof Held)[]).filter(
    (field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]),
  )
}

/** The fields that a change alters, as they were and as they are; of a secret only that it is another one. */
export function difference(before: Held, after: Held) {
  const changed = changedIn(before, after)
  const of = (provider: Held) => {
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
export function checkSeesWhole(scope: Scope): void {
  if (!isNarrowed(scope)) return
  throw new Problem('site_access_denied', 'Your access is limited to some sites or device groups')
}

/** @throws invalid_request */
export function checkStays(provider: Held, orgId: string | undefined): void {
  if (orgId === undefined || orgId === provider.orgId) return
  throw invalid([{ path: 'body.orgId', message: 'cannot change: make another provider there' }])
}

/** How long ago an administrator may have signed in with it when it becomes the only way in. */
export const provenSeconds = 24 * 3600

/** @throws invalid_request: nobody locks an organization out by mistake */
export function checkProven(isProven: boolean): void {
  if (isProven) return
  const message =
    'An administrator of the organization has to sign in with this provider first, at most 24 hours before; force: true does without'
  throw invalid([{ path: 'body.enforceSSO', message }], message)
}
