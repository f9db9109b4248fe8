import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { ApiKeyCaller } from '../../handler.ts'
import { findOrgPermissions } from '../../identity/org-permissions.ts'
import type { Db } from '../../storage/open.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { isTenantUsable } from '../../tenancy/rules.ts'
import type { ApiKey } from './contract.ts'
import { effectivePermissions, statusAt } from './rules.ts'

/* The key itself is the credential, so its hash takes the place of a scope. */

const columns = [
  'api_keys.id',
  'api_keys.org_id',
  'api_keys.name',
  'api_keys.key_hash',
  'api_keys.previous_until',
  'api_keys.scopes',
  'api_keys.expires_at',
  'api_keys.rate_limit',
  'api_keys.status',
  'api_keys.created_by',
  'o.partner_id',
  'o.status as org_status',
  'o.deleted_at as org_deleted_at',
  'p.status as partner_status',
  'p.deleted_at as partner_deleted_at',
] as const

const keysWithTenant = (db: Db) =>
  db
    .selectFrom('api_keys')
    .innerJoin('organizations as o', 'o.id', 'api_keys.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .select(columns)

const byHash = prepared((db, p: { hash: string }) => keysWithTenant(db).where('key_hash', '=', p.hash))
const byPreviousHash = prepared((db, p: { hash: string }) =>
  keysWithTenant(db).where('previous_hash', '=', p.hash),
)

/** A presented key, with everything that decides about it except the time and its rate limit usage. */
export type PresentedKey = {
  id: string
  /** Hash of the current key, which distinguishes uses before a rotation from those after it. */
  hash: string
  status: ApiKey['status']
  expiresAt: Instant | null
  /** Set when a rotation replaced the presented key: it works until then. */
  until: Instant | null
  rateLimit: number
  caller: ApiKeyCaller
}

/** undefined when no key has this hash, now or before its last rotation. */
export async function findPresentedKey(db: Db, hash: string): Promise<PresentedKey | undefined> {
  const [current] = await byHash(db, { hash })
  const row = current ?? (await byPreviousHash(db, { hash }))[0]
  if (!row) return undefined
  const { id, name, org_id: orgId } = row
  const inUse = isTenantUsable(row)
  const {
    permissions: held,
    siteIds,
    groupIds,
  } = await findOrgPermissions(db, row.created_by, {
    id: orgId,
    partnerId: row.partner_id,
  })
  const permissions = effectivePermissions(JSON.parse(row.scopes) as string[], held)
  return {
    id,
    hash: row.key_hash,
    // Keys of a tenant that is not in use count as revoked.
    status: inUse ? (row.status as ApiKey['status']) : 'revoked',
    expiresAt: row.expires_at,
    until: current ? null : row.previous_until,
    rateLimit: row.rate_limit,
    caller: {
      kind: 'api_key',
      id,
      name,
      orgId,
      scope: { kind: 'organization', orgId, siteIds, groupIds },
      permissions,
    },
  }
}

const expiry = prepared((db, p: { id: string }) =>
  db.updateTable('api_keys').set({ status: 'expired' }).where('id', '=', p.id).where('status', '=', 'active'),
)

/** Records that a key has expired, once an authentication attempt finds it so. */
export async function expireApiKey(db: Db, id: string): Promise<void> {
  await expiry(db, { id })
}

/** Refuses a key that is no longer valid. @throws invalid_api_key, api_key_revoked, api_key_expired */
export function checkUsable(key: PresentedKey, now: Instant): void {
  if (key.until !== null && key.until <= now) throw new Problem('invalid_api_key')
  const status = statusAt(key, now)
  if (status === 'revoked') throw new Problem('api_key_revoked')
  if (status === 'expired') throw new Problem('api_key_expired')
}
