import { type Expression, expressionBuilder, type SqlBool } from 'kysely'
import { everything, only, type Scope } from '../core/scope.ts'
import { type Instant, later } from '../core/time.ts'
import { deviceMatches } from '../filters/compile.ts'
import type { ConditionGroup, SavedFilter } from '../filters/contract.ts'
import { forUpdate, inScope } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'
import type { Tables } from '../storage/tables.ts'
import { addMembers, takeMembers } from './members.ts'

/** A group that a filter fills. */
export type Dynamic = { id: string; orgId: string; siteId: string | null; conditions: ConditionGroup }

/** One as it is stored. */
export type Claimed = { id: string; org_id: string; site_id: string | null; conditions: string }

/** Devices that the filter finds and the group lacks, and those in it that the filter does not find. */
export type Difference = { missing: string[]; surplus: string[] }

const eb = expressionBuilder<Tables, 'devices'>()

/** Whether a device belongs into a group: it is of its organization, of its site if it has one, and found. */
const belongs = ({ orgId, siteId, conditions }: Dynamic, now: Instant): Expression<SqlBool> =>
  eb.and([
    inScope(only(orgId), 'devices.org_id'),
    ...(siteId === null ? [] : [eb('devices.site_id', '=', siteId)]),
    deviceMatches(conditions, { now }),
  ])

export async function findDifference(db: Db, group: Dynamic, now: Instant): Promise<Difference> {
  const missing = await db
    .selectFrom('devices')
    .select('devices.id')
    .where(belongs(group, now))
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('device_group_devices as m')
            .select('m.device_id')
            .where('m.group_id', '=', group.id)
            .whereRef('m.device_id', '=', 'devices.id'),
        ),
      ),
    )
    .execute()
  const surplus = await db
    .selectFrom('device_group_devices as m')
    .select('m.device_id as id')
    .where('m.group_id', '=', group.id)
    .where('m.is_pinned', '=', 0)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('devices')
            .select('devices.id')
            .whereRef('devices.id', '=', 'm.device_id')
            .where(belongs(group, now)),
        ),
      ),
    )
    .execute()
  return { missing: missing.map(({ id }) => id), surplus: surplus.map(({ id }) => id) }
}

/** Whether the filter of a group finds a device. */
export async function isFound(db: Db, group: Dynamic, deviceId: string, now: Instant): Promise<boolean> {
  const found = db
    .selectFrom('devices')
    .select('devices.id')
    .where('devices.id', '=', deviceId)
    .where(belongs(group, now))
  return (await found.executeTakeFirst()) !== undefined
}

async function settle(db: Db, groupId: string, { missing, surplus }: Difference, now: Instant) {
  await addMembers(db, groupId, missing, { reason: 'filter_match', now })
  await takeMembers(db, groupId, surplus, { reason: 'filter_unmatch', now })
}

/** Makes the devices of a group those that its filter finds, within the transaction that made the difference. */
export async function refresh(db: Db, group: Dynamic, now: Instant): Promise<void> {
  await settle(db, group.id, await findDifference(db, group, now), now)
  await db.updateTable('device_groups').set({ evaluated_at: now }).where('id', '=', group.id).execute()
}

/**
 * The same with a difference found outside the transaction; nothing when the group was evaluated again since,
 * because its filter may be another one now.
 */
export async function settleClaimed(
  db: Db,
  groupId: string,
  difference: Difference,
  { claimedAt, now }: { claimedAt: Instant; now: Instant },
): Promise<void> {
  const mine = db
    .selectFrom('device_groups')
    .select('id')
    .where('id', '=', groupId)
    .where('evaluated_at', '=', claimedAt)
  const [found] = await forUpdate(mine).execute()
  if (found) await settle(db, groupId, difference, now)
}

/** How old what a filter found may get. */
const goodForSeconds = 60

const due = (db: Db, now: Instant) =>
  db
    .selectFrom('device_groups')
    .select('id')
    .where('filter_id', 'is not', null)
    .where(inScope(everything, 'org_id'))
    .where(({ or, eb }) =>
      or([eb('evaluated_at', 'is', null), eb('evaluated_at', '<=', later(now, -goodForSeconds))]),
    )

export async function isGroupDue(db: Db, now: Instant): Promise<boolean> {
  return (await due(db, now).limit(1).executeTakeFirst()) !== undefined
}

/** Groups whose turn it is. */
export async function listDue(db: Db, now: Instant, limit: number): Promise<string[]> {
  const found = await due(db, now).orderBy('evaluated_at').limit(limit).execute()
  return found.map(({ id }) => id)
}

/**
 * Takes over those of these groups whose turn it still is; the time is the claim. Another process that asks for the same
 * ones waits for this to commit, and then finds that their turn is over.
 */
export async function claimDue(db: Db, ids: readonly string[], now: Instant): Promise<Claimed[]> {
  const claimed = await db
    .updateTable('device_groups')
    .set({ evaluated_at: now })
    .where('id', 'in', ids)
    .where(({ or, eb }) =>
      or([eb('evaluated_at', 'is', null), eb('evaluated_at', '<=', later(now, -goodForSeconds))]),
    )
    .returning('id')
    .execute()
  if (claimed.length === 0) return []
  return dynamicGroups(db)
    .where(
      'g.id',
      'in',
      claimed.map(({ id }) => id),
    )
    .execute()
}

const dynamicGroups = (db: Db) =>
  db
    .selectFrom('device_groups as g')
    .innerJoin('saved_filters as f', 'f.id', 'g.filter_id')
    .select(['g.id', 'g.org_id', 'g.site_id', 'f.conditions'])
    .orderBy('g.id')

/** @throws when its filter is none */
export const toDynamic = (row: Claimed): Dynamic => ({
  id: row.id,
  orgId: row.org_id,
  siteId: row.site_id,
  conditions: JSON.parse(row.conditions) as ConditionGroup,
})

/** The groups that a filter fills, whoever can see them: a change of it concerns them all. */
export async function listFilledBy(
  db: Db,
  scope: Scope,
  { id, conditions }: Pick<SavedFilter, 'id' | 'conditions'>,
): Promise<Dynamic[]> {
  const groups = forUpdate(
    db
      .selectFrom('device_groups')
      .select(['id', 'org_id as orgId', 'site_id as siteId'])
      .where('filter_id', '=', id)
      .where(inScope(scope, 'device_groups.org_id'))
      .orderBy('id'),
  )
  return (await groups.execute()).map((group) => ({ ...group, conditions }))
}
