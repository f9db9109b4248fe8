import { type Expression, expressionBuilder, type OrderByItemBuilder, type SqlBool } from 'kysely'
import { organizationScope, type Scope, systemScope } from '../core/scope.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import { deviceMatches } from '../filters/compile.ts'
import type { ConditionGroup, SavedFilter } from '../filters/contract.ts'
import type { Db } from '../storage/open.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { inScope } from '../storage/query/scope.ts'
import type { Tables } from '../storage/schema/tables.ts'
import { isAmong } from '../storage/search/ranking.ts'
import { addMembers, removeMembers } from './members.ts'

/** A group whose members a filter selects. */
export type DynamicGroup = GroupScope & {
  id: string
  conditions: ConditionGroup
  evaluationError: string | null
}
type GroupScope = { orgId: string; siteId: string | null }

/** The devices that conditions match in an organization, computed before the transaction that needs them. */
export type FilterResult = { to: ConditionGroup; ids: string[] }

/** A dynamic group as stored. */
export type ClaimedGroup = {
  id: string
  org_id: string
  partner_id: string
  site_id: string | null
  evaluation_error: string | null
  conditions: string
}

/** Devices to add because the filter matches them, and devices to remove because it does not. */
export type MembershipDiff = { missing: string[]; surplus: string[] }

const eb = expressionBuilder<Tables, 'devices'>()

/** Whether a device belongs to a group: in its organization, in its site if it has one, and matched. */
const belongs = ({ orgId, siteId }: GroupScope, found: Expression<SqlBool>): Expression<SqlBool> =>
  eb.and([
    inScope(organizationScope(orgId), 'devices.org_id'),
    ...(siteId === null ? [] : [eb('devices.site_id', '=', siteId)]),
    found,
  ])

/** The devices that conditions match in an organization. May take long: call it outside of transactions. */
export async function evaluateFilter(
  db: Db,
  { orgId, conditions }: Pick<DynamicGroup, 'orgId' | 'conditions'>,
  now: Instant,
): Promise<FilterResult> {
  const found = belongs({ orgId, siteId: null }, deviceMatches(conditions, { now }))
  const rows = await db.selectFrom('devices').select('devices.id').where(found).execute()
  return { to: conditions, ids: rows.map(({ id }) => id) }
}

/** Evaluates the group's filter. */
export const diffMembers = (db: Db, group: DynamicGroup, now: Instant): Promise<MembershipDiff> =>
  diffAgainst(db, group, belongs(group, deviceMatches(group.conditions, { now })))

async function diffAgainst(
  db: Db,
  group: DynamicGroup,
  belonging: Expression<SqlBool>,
): Promise<MembershipDiff> {
  const missing = await db
    .selectFrom('devices')
    .select('devices.id')
    .where(belonging)
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
            .where(belonging),
        ),
      ),
    )
    .execute()
  return { missing: missing.map(({ id }) => id), surplus: surplus.map(({ id }) => id) }
}

/** Whether the filter of a group matches a device. */
export async function matchesFilter(
  db: Db,
  group: DynamicGroup,
  deviceId: string,
  now: Instant,
): Promise<boolean> {
  const found = db
    .selectFrom('devices')
    .select('devices.id')
    .where('devices.id', '=', deviceId)
    .where(belongs(group, deviceMatches(group.conditions, { now })))
  return (await found.executeTakeFirst()) !== undefined
}

async function applyDiff(db: Db, groupId: string, { missing, surplus }: MembershipDiff, now: Instant) {
  await addMembers(db, groupId, missing, { reason: 'filter_match', now })
  await removeMembers(db, groupId, surplus, { reason: 'filter_unmatch', now })
}

/** Most devices that the transaction of a request adds to a group or removes from it. */
const maxInRequest = 1000
/** Most groups that the change of one filter fills in its own transaction. */
const maxGroupsInRequest = 20

/**
 * Sets the members of a group to the devices that its filter matched just before. If the filter has changed since, or
 * many devices would move, the group becomes due at once, and the background job does it in small transactions: a
 * request's transaction holds a connection, locks and, on SQLite, the only writer.
 */
export async function refreshGroup(
  db: Db,
  group: DynamicGroup,
  answer: FilterResult | undefined,
  now: Instant,
): Promise<void> {
  const isAnswered =
    answer !== undefined &&
    answer.ids.length <= maxInRequest &&
    JSON.stringify(answer.to) === JSON.stringify(group.conditions) &&
    !(await isLarge(db, group.id))
  if (isAnswered) {
    const difference = await diffAgainst(db, group, belongs(group, isAmong(answer.ids)))
    await applyDiff(db, group.id, difference, now)
  }
  await db
    .updateTable('device_groups')
    .set({ evaluated_at: isAnswered ? now : null, evaluation_error: null })
    .where('id', '=', group.id)
    .execute()
}

/** The same for all groups of a filter. If there are many, all become due instead. */
export async function refreshGroups(
  db: Db,
  groups: readonly DynamicGroup[],
  answer: FilterResult | undefined,
  now: Instant,
): Promise<void> {
  const isFew = groups.length <= maxGroupsInRequest
  for (const group of groups) await refreshGroup(db, group, isFew ? answer : undefined, now)
}

/** Whether the group has more devices than a request may remove. */
async function isLarge(db: Db, groupId: string): Promise<boolean> {
  const one = db.selectFrom('device_group_devices').select('device_id').where('group_id', '=', groupId)
  return (await one.limit(1).offset(maxInRequest).executeTakeFirst()) !== undefined
}

/**
 * Applies a difference computed outside the transaction; does nothing when the group was evaluated again since,
 * because its filter may have changed.
 */
export async function applyClaimedDiff(
  db: Db,
  groupId: string,
  difference: MembershipDiff,
  { claimedAt, now }: { claimedAt: Instant; now: Instant },
): Promise<void> {
  const mine = db
    .selectFrom('device_groups')
    .select('id')
    .where('id', '=', groupId)
    .where('evaluated_at', '=', claimedAt)
  const [found] = await forUpdate(mine).execute()
  if (found) await applyDiff(db, groupId, difference, now)
}

/** Records the success or the error of an evaluation; does nothing when the group was evaluated again since. */
export async function recordEvaluation(
  db: Db,
  groupId: string,
  error: string | null,
  claimedAt: Instant,
): Promise<void> {
  await db
    .updateTable('device_groups')
    .set({ evaluation_error: error })
    .where('id', '=', groupId)
    .where('evaluated_at', '=', claimedAt)
    .execute()
}

/** Longest time between two evaluations of a filter. */
const maxAgeSeconds = 60
/** Pause after a failed evaluation: it may have taken as long as a query is allowed to. */
const errorRetrySeconds = 900

/** Pause after which another process may evaluate a filter that this one does not support. */
const deferSeconds = 30

/**
 * Like `recordEvaluation`, for a filter that only a newer release can evaluate: the group is due again soon, for a
 * process of that release.
 */
export async function deferGroup(db: Db, groupId: string, error: string, claimedAt: Instant): Promise<void> {
  const evaluatedAt = addSeconds(claimedAt, deferSeconds - errorRetrySeconds)
  await db
    .updateTable('device_groups')
    .set({ evaluation_error: error, evaluated_at: evaluatedAt })
    .where('id', '=', groupId)
    .where('evaluated_at', '=', claimedAt)
    .execute()
}

const due = (db: Db, now: Instant) =>
  db
    .selectFrom('device_groups')
    .select('device_groups.id')
    .where('filter_id', 'is not', null)
    .where(inScope(systemScope, 'org_id'))
    .where(isDue(now))

/** The last evaluation is older than the pause that applies. */
const isDue = (now: Instant) => {
  const groups = expressionBuilder<Tables, 'device_groups'>()
  return groups.or([
    groups('evaluated_at', 'is', null),
    groups.and([
      groups('evaluated_at', '<=', addSeconds(now, -maxAgeSeconds)),
      groups.or([
        groups('evaluation_error', 'is', null),
        groups('evaluated_at', '<=', addSeconds(now, -errorRetrySeconds)),
      ]),
    ]),
  ])
}

export async function hasDueGroup(db: Db, now: Instant): Promise<boolean> {
  return (await due(db, now).limit(1).executeTakeFirst()) !== undefined
}

/** Due groups, and when the first of them became due; of those that are due at once that is not known. */
export async function groupBacklog(db: Db, now: Instant): Promise<{ count: number; since: Instant | null }> {
  const { count, last } = await db
    .selectFrom(due(db, now).select('evaluated_at').as('due'))
    .select(({ fn }) => [fn.countAll<number>().as('count'), fn.min('evaluated_at').as('last')])
    .executeTakeFirstOrThrow()
  return { count, since: last === null ? null : addSeconds(last, maxAgeSeconds) }
}

const nullsFirst = (order: OrderByItemBuilder) => order.asc().nullsFirst()

/**
 * Due groups, the longest waiting first, at most `ofPartner` of each partner: a partner with thousands of groups that
 * are slow to evaluate does not delay the groups of others.
 */
export async function listDueGroups(
  db: Db,
  now: Instant,
  { limit, ofPartner }: { limit: number; ofPartner: number },
): Promise<string[]> {
  const ranked = due(db, now)
    .innerJoin('organizations as o', 'o.id', 'device_groups.org_id')
    .select(({ fn }) => [
      'device_groups.evaluated_at',
      fn
        .agg<number>('row_number')
        .over((over) => over.partitionBy('o.partner_id').orderBy('device_groups.evaluated_at', nullsFirst))
        .as('place'),
    ])
  const found = await db
    .selectFrom(ranked.as('ranked'))
    .select('id')
    .where('place', '<=', ofPartner)
    .orderBy('place')
    .orderBy('evaluated_at', nullsFirst)
    .limit(limit)
    .execute()
  return found.map(({ id }) => id)
}

/**
 * Claims those of these groups that are still due; `evaluated_at` is the claim. Another process that claims the same
 * groups waits for this one to commit, and then finds that they are not due.
 */
export async function claimDueGroups(db: Db, ids: readonly string[], now: Instant): Promise<ClaimedGroup[]> {
  const claimed = await db
    .updateTable('device_groups')
    .set({ evaluated_at: now })
    .where('id', 'in', ids)
    .where(isDue(now))
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

/** Makes claimed groups that were not evaluated due again. */
export async function unclaimGroups(db: Db, ids: readonly string[], claimedAt: Instant): Promise<void> {
  await db
    .updateTable('device_groups')
    .set({ evaluated_at: null })
    .where('id', 'in', ids)
    .where('evaluated_at', '=', claimedAt)
    .execute()
}

const dynamicGroups = (db: Db) =>
  db
    .selectFrom('device_groups as g')
    .innerJoin('saved_filters as f', 'f.id', 'g.filter_id')
    .innerJoin('organizations as o', 'o.id', 'g.org_id')
    .select(['g.id', 'g.org_id', 'o.partner_id', 'g.site_id', 'g.evaluation_error', 'f.conditions'])
    .orderBy('g.id')

/** @throws when the stored conditions are not JSON */
export const toDynamicGroup = (row: ClaimedGroup): DynamicGroup => ({
  id: row.id,
  orgId: row.org_id,
  siteId: row.site_id,
  evaluationError: row.evaluation_error,
  conditions: JSON.parse(row.conditions) as ConditionGroup,
})

/**
 * The groups that a filter fills, including those outside the caller's sites and groups: a change of the filter
 * affects them all.
 */
export async function listGroupsOfFilter(
  db: Db,
  scope: Scope,
  { id, conditions }: Pick<SavedFilter, 'id' | 'conditions'>,
): Promise<DynamicGroup[]> {
  const groups = forUpdate(
    db
      .selectFrom('device_groups')
      .select(['id', 'org_id as orgId', 'site_id as siteId', 'evaluation_error as evaluationError'])
      .where('filter_id', '=', id)
      .where(inScope(scope, 'device_groups.org_id'))
      .orderBy('id'),
  )
  return (await groups.execute()).map((group) => ({ ...group, conditions }))
}
