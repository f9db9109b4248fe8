import { type RawBuilder, sql } from 'kysely'
import { Problem } from '../core/errors.ts'
import type { QuotaName, QuotaOwner } from '../core/quotas.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Db } from './db.ts'
import { isPostgres } from './query/prepared.ts'
import type { TableName } from './schema/tables.ts'

type Kind = {
  table: TableName
  /** The table of a partner's records, where it is another one. */
  ofPartner?: TableName
  /** Columns that name the owner; none: the quota is one for the whole service. */
  owner: readonly ('org_id' | 'partner_id')[]
  /** Deleted records count, too. */
  keepsDeleted?: true
  /** Which records count; all by default. */
  counted?: RawBuilder<boolean>
  /** Which records are deleted, oldest first, to make room for a new one. */
  ended?: (now: Instant) => RawBuilder<boolean>
}

const ofOrg = ['org_id'] as const
const ofEither = ['org_id', 'partner_id'] as const

/** Where the records of each quota are. */
const kinds: Readonly<Record<QuotaName, Kind>> = {
  PARTNERS: { table: 'partners', owner: [], keepsDeleted: true },
  PENDING_PARTNERS: { table: 'partners', owner: [], counted: sql`status = 'pending'` },
  ORGANIZATIONS: { table: 'organizations', owner: ['partner_id'], keepsDeleted: true },
  SITES: { table: 'sites', owner: ofOrg },
  MEMBERS: { table: 'organization_memberships', ofPartner: 'partner_memberships', owner: ofOrg },
  ROLES: { table: 'roles', owner: ofEither },
  API_KEYS: {
    table: 'api_keys',
    owner: ofOrg,
    ended: (now) => sql`(status = 'revoked' or expires_at <= ${now})`,
  },
  ENROLLMENT_KEYS: {
    table: 'enrollment_keys',
    owner: ofOrg,
    // Until then it may be rotated, and used again.
    ended: (now) => sql`expires_at <= ${addSeconds(now, -90 * 86_400)}`,
  },
  DEVICES: { table: 'devices', owner: ofOrg },
  FILTERS: { table: 'saved_filters', owner: ofOrg },
  DEVICE_GROUPS: { table: 'device_groups', owner: ofOrg },
  SCRIPTS: { table: 'scripts', owner: ofEither, ended: () => sql`deleted_at is not null` },
  ALERTS: { table: 'alerts', owner: ofOrg, ended: () => sql`resolved_at is not null` },
  WEBHOOKS: { table: 'webhooks', owner: ofOrg, counted: sql`deleted_at is null` },
  SSO_PROVIDERS: { table: 'sso_providers', owner: ofOrg },
  TRUST_POLICIES: { table: 'trust_policies', owner: ofOrg },
}

/** Most records deleted at once: a quota that was lowered is reached again step by step. */
const batch = 10

/**
 * Checks, before a record is created, that its owner may have another one. `room`: how many the owner may have besides
 * the present ones; `displaced`: ids of those that were deleted to make room. On Postgres requests that run at the same
 * moment do not see each other's records: an owner may exceed the quota by the number of connections of the pools.
 * @throws quota_exceeded
 */
export async function checkQuota(
  db: Db,
  name: QuotaName,
  { owner, max, now }: { owner: QuotaOwner; max: number; now: Instant },
): Promise<{ room: number; displaced: string[] }> {
  const { counted = sql`true`, ended, ...kind } = kinds[name]
  const isOfPartner = kind.ofPartner !== undefined && !owner.orgId
  const table = sql.table(isOfPartner ? kind.ofPartner! : kind.table)
  const owned = ownedBy(isOfPartner ? ['partner_id'] : kind.owner, owner)
  const { rows } = await sql<{ count: number | string }>`
    select count(*) as count from (
      select 1 from ${table} where ${owned} and ${counted} limit ${max + batch}) as own`.execute(db)
  const excess = Number(rows[0]!.count) - max + 1
  if (excess <= 0) return { room: 1 - excess, displaced: [] }
  if (ended) {
    // What another transaction deletes at this moment is left to it.
    const unlocked = isPostgres(db.getExecutor()) ? sql`for update skip locked` : sql``
    const deleted = await sql<{ id: string }>`
      delete from ${table} where id in (
        select id from ${table} where ${owned} and ${ended(now)} order by id limit ${Math.min(excess, batch)}
        ${unlocked}) returning id`.execute(db)
    if (deleted.rows.length > 0) return { room: 1, displaced: deleted.rows.map(({ id }) => id) }
  }
  const reached = `The quota of ${max} ${nounOf(name)} is used up`
  const remedy = `ask the operator of the service to raise QUOTA_${name}`
  throw new Problem('quota_exceeded', `${reached}: ${kind.keepsDeleted ? '' : 'delete some, or '}${remedy}`, {
    details: { quota: name, most: max },
  })
}

function ownedBy(columns: Kind['owner'], { orgId, partnerId }: QuotaOwner): RawBuilder<boolean> {
  const ids = { org_id: orgId, partner_id: partnerId }
  const parts = columns.map((column) =>
    ids[column] ? sql`${sql.ref(column)} = ${ids[column]}` : sql`${sql.ref(column)} is null`,
  )
  return parts.length === 0 ? sql`true` : sql.join(parts, sql` and `)
}

const nounOf = (name: QuotaName): string => name.toLowerCase().replaceAll('_', ' ')
