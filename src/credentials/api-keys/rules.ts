import { hash } from 'node:crypto'
import { invalid, Problem } from '../../core/errors.ts'
import { hasPermission, type Permission } from '../../core/permissions.ts'
import { randomBytes } from '../../core/random.ts'
import { isNarrowed, type Scope } from '../../core/scope.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { ApiKey, ApiKeyChange, NewApiKey } from './contract.ts'

const prefix = 'svc_'

/** `svc_` and 32 characters of base64url randomness: 192 bits. */
export const newApiKey = (): string => prefix + randomBytes(24).toString('base64url')

export const isWellFormed = (key: string): boolean => key.startsWith(prefix)

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

/** What a key is at this moment: its expiry is only written down when it is used. */
export function statusAt(key: Pick<ApiKey, 'status' | 'expiresAt'>, now: Instant): ApiKey['status'] {
  const isOver = key.status === 'active' && key.expiresAt !== null && key.expiresAt <= now
  return isOver ? 'expired' : key.status
}

/** @throws invalid_request: only active keys can be updated or rotated */
export function checkChangeable(key: ApiKey, now: Instant): void {
  if (statusAt(key, now) === 'active') return
  const message = 'Cannot update revoked API key'
  throw invalid([{ path: 'params.id', message }], message)
}

/** @throws invalid_request: revoking is for good, and once */
export function checkRevocable(key: ApiKey): void {
  if (key.status !== 'revoked') return
  const message = 'API key is already revoked'
  throw invalid([{ path: 'params.id', message }], message)
}

/**
 * Nobody hands out what they do not hold; `*` takes a caller who may do everything.
 * @throws forbidden, naming the scope
 */
export function checkDelegation(scopes: readonly string[], held: ReadonlySet<string>): void {
  const missing = scopes.find((scope) => !hasPermission(held, scope === '*' ? '*:*' : (scope as Permission)))
  if (missing === undefined) return
  throw new Problem('forbidden', `You cannot give the scope "${missing}" to an API key: you do not hold it`, {
    details: { scope: missing },
  })
}

/** Whether a change gives a key what it had not; `*` has everything. */
export const isWidened = (before: Pick<ApiKey, 'scopes'>, after: Pick<ApiKey, 'scopes'>): boolean =>
  !before.scopes.includes('*') && after.scopes.some((scope) => !before.scopes.includes(scope))

/**
 * A rotation hands out the key, and a wider scope reaches as far as it does: who sees some sites only must neither get one
 * that sees more, nor give to one what they have at theirs alone.
 * @throws site_access_denied
 */
export function checkKeyReach(key: ApiKey, caller: { id: string; scope: Scope }): void {
  if (!isNarrowed(caller.scope) || key.createdBy === caller.id) return
  throw new Problem('site_access_denied', 'Your access is limited to some sites or device groups')
}

/** The permissions a key has: its scopes, as far as its creator holds them now. */
export function effectivePermissions(
  scopes: readonly string[],
  creator: ReadonlySet<string>,
): ReadonlySet<string> {
  if (scopes.includes('*')) return creator
  return new Set(scopes.filter((scope) => hasPermission(creator, scope as Permission)))
}

export const applyChange = (key: ApiKey, change: ApiKeyChange): ApiKey => ({
  ...key,
  ...(change.name !== undefined && { name: change.name }),
  ...(change.scopes !== undefined && { scopes: change.scopes }),
  ...(change.rateLimit !== undefined && { rateLimit: change.rateLimit }),
})

/** The fields that a change alters, as they were and as they are. */
export function difference(before: ApiKey, after: ApiKey): { before: object; after: object } {
  const fields = (['name', 'scopes', 'rateLimit'] as const).filter(
    (field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]),
  )
  const of = (key: ApiKey) => Object.fromEntries(fields.map((field) => [field, key[field]]))
  return { before: of(before), after: of(after) }
}

export const rotateKey = (key: ApiKey, fresh: string): ApiKey => ({
  ...key,
  keyPrefix: prefixOf(fresh),
  usageCount: 0,
  lastUsedAt: null,
})

/** Until when the key before a rotation works; never longer than the key itself. null: it dies at once. */
export function overlapEnd(
  key: Pick<ApiKey, 'expiresAt'>,
  overlapSeconds: number,
  now: Instant,
): Instant | null {
  if (overlapSeconds === 0) return null
  const end = addSeconds(now, overlapSeconds)
  return key.expiresAt !== null && key.expiresAt < end ? key.expiresAt : end
}
