import { hash } from 'node:crypto'
import { invalid, Problem } from '../../core/errors.ts'
import { hasPermission, missingPermissions, type Permission } from '../../core/permissions.ts'
import { randomBytes } from '../../core/random.ts'
import { isNarrowed, type Scope } from '../../core/scope.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import { narrowedAccess } from '../../identity/rules.ts'
import { isExpired } from '../rules.ts'
import type { ApiKey, ApiKeyChange, NewApiKey } from './contract.ts'

const prefix = 'svc_'

/** `svc_` and 32 characters of base64url randomness: 192 bits. */
export const newApiKey = (): string => prefix + randomBytes(24).toString('base64url')

export const isApiKey = (key: string): boolean => key.startsWith(prefix)

/** Stored form: SHA-256 of the full key. Its randomness needs no salt. */
export const apiKeyHash = (key: string): string => hash('sha256', key, 'hex')

const prefixOf = (key: string): string => key.slice(0, 12)

export function makeApiKey(
  wanted: NewApiKey & { orgId: string },
  made: { id: string; key: string; by: string; now: Instant },
): ApiKey {
  const { orgId, name, scopes, expiresAt, rateLimit } = wanted
  return {
    id: made.id,
    orgId,
    name,
    keyPrefix: prefixOf(made.key),
    scopes,
    expiresAt,
    rateLimit,
    status: 'active',
    createdBy: made.by,
    createdAt: made.now,
    lastUsedAt: null,
    usageCount: 0,
  }
}

/** The current status of a key: the stored one only changes to expired when the key is used. */
export function statusAt(key: Pick<ApiKey, 'status' | 'expiresAt'>, now: Instant): ApiKey['status'] {
  return key.status === 'active' && isExpired(key, now) ? 'expired' : key.status
}

/** @throws invalid_request: only active keys can be updated or rotated */
export function checkChangeable(key: ApiKey, now: Instant): void {
  if (statusAt(key, now) === 'active') return
  const message = 'Cannot update revoked API key'
  throw invalid([{ path: 'params.id', message }], message)
}

/** @throws invalid_request: a key can be revoked once, permanently */
export function checkRevocable(key: ApiKey): void {
  if (key.status !== 'revoked') return
  const message = 'API key is already revoked'
  throw invalid([{ path: 'params.id', message }], message)
}

/**
 * A user can only give a key scopes that they hold; `*` requires every permission.
 * @throws forbidden, naming the scope
 */
export function checkDelegation(scopes: readonly string[], held: ReadonlySet<string>): void {
  const missing = scopes.find((scope) => !hasPermission(held, scope === '*' ? '*:*' : (scope as Permission)))
  if (missing === undefined) return
  throw new Problem('forbidden', `You cannot give the scope "${missing}" to an API key: you do not hold it`, {
    details: { scope: missing },
  })
}

/** Whether a change gives a key a scope it did not have; `*` includes every scope. */
export const isWidened = (before: Pick<ApiKey, 'scopes'>, after: Pick<ApiKey, 'scopes'>): boolean =>
  !before.scopes.includes('*') && after.scopes.some((scope) => !before.scopes.includes(scope))

/**
 * A rotation returns the key, and a wider scope applies wherever the key does. A user limited to some sites
 * must neither get a key that sees more, nor give such a key permissions that they only have at their sites.
 * @throws site_access_denied
 */
export function checkKeyReach(key: ApiKey, caller: { id: string; scope: Scope }): void {
  if (!isNarrowed(caller.scope) || key.createdBy === caller.id) return
  throw new Problem('site_access_denied', narrowedAccess)
}

/** The permissions of a key: its scopes, limited to what its creator holds now. */
export function effectivePermissions(
  scopes: readonly string[],
  creator: ReadonlySet<string>,
): ReadonlySet<string> {
  if (scopes.includes('*')) return creator
  return new Set(scopes.filter((scope) => hasPermission(creator, scope as Permission)))
}

/** What a key may do and reaches, which its creator decides. */
export type KeyAccess = {
  permissions: ReadonlySet<string>
  /** null: all. */
  siteIds: readonly string[] | null
  groupIds: readonly string[] | null
}

const isWithin = (reach: readonly string[] | null, of: readonly string[] | null): boolean =>
  of === null || (reach?.every((id) => of.includes(id)) ?? false)

/** `all`: the key can do nothing any more; undefined: it loses nothing. */
export function lossBetween(before: KeyAccess, after: KeyAccess): 'all' | 'part' | undefined {
  if (before.permissions.size === 0) return undefined
  if (after.permissions.size === 0) return 'all'
  const keepsPermissions = missingPermissions(after.permissions, before.permissions).length === 0
  const keepsReach = isWithin(before.siteIds, after.siteIds) && isWithin(before.groupIds, after.groupIds)
  return keepsPermissions && keepsReach ? undefined : 'part'
}

export const applyChange = (key: ApiKey, change: ApiKeyChange): ApiKey => ({
  ...key,
  ...(change.name !== undefined && { name: change.name }),
  ...(change.scopes !== undefined && { scopes: change.scopes }),
  ...(change.rateLimit !== undefined && { rateLimit: change.rateLimit }),
})

/** The changed fields, before and after. */
export function difference(before: ApiKey, after: ApiKey): { before: object; after: object } {
  const fields = (['name', 'scopes', 'rateLimit'] as const).filter(
    (field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]),
  )
  const of = (key: ApiKey) => Object.fromEntries(fields.map((field) => [field, key[field]]))
  return { before: of(before), after: of(after) }
}

/** `expiresAt` undefined: the expiry stays. */
export const rotateKey = (key: ApiKey, fresh: string, expiresAt: Instant | null = key.expiresAt): ApiKey => ({
  ...key,
  expiresAt,
  keyPrefix: prefixOf(fresh),
  usageCount: 0,
  lastUsedAt: null,
})

/** A key that is rotated because it expires expires all the same unless its rotation says otherwise. */
export const expiryKept = (
  { expiresAt }: Pick<ApiKey, 'expiresAt'>,
  wanted: Instant | null | undefined,
): string =>
  wanted === undefined && expiresAt !== null ? ` It expires at ${expiresAt}, as the old one did.` : ''

/**
 * Until when the previous key of a rotation works; never longer than it did before, nor than the new one. null: it
 * stops at once.
 */
export function overlapEnd(
  keys: readonly Pick<ApiKey, 'expiresAt'>[],
  overlapSeconds: number,
  now: Instant,
): Instant | null {
  if (overlapSeconds === 0) return null
  const ends = keys.flatMap(({ expiresAt }) => expiresAt ?? [])
  return [addSeconds(now, overlapSeconds), ...ends].sort()[0]!
}
