import { Problem } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { CursorPage, CursorPageQuery } from '../core/page.ts'
import type { Scope } from '../core/scope.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { readCursorPage } from '../storage/query/pages.ts'
import { inGroups, inScope, inSites } from '../storage/query/scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { DeviceGroupChangeRow, DeviceRow } from '../storage/schema/tables.ts'
import type { DeviceGroup, GroupChange, GroupMember } from './contract.ts'

// Queries on the devices of a group whose visibility was checked; a caller sees only their own part of the devices.

type MemberRow = Pick<
  DeviceRow,
  'id' | 'org_id' | 'site_id' | 'hostname' | 'display_name' | 'os_type' | 'status'
> & { is_pinned: number; added_by: string; added_at: string }

const memberRows = rowsOf<MemberRow>()({ flags: ['is_pinned'] })
const changeRows = rowsOf<Omit<DeviceGroupChangeRow, 'group_id'> & { hostname: string }>()()

const columns = [
  'devices.id',
  'devices.org_id',
  'devices.site_id',
  'devices.hostname',
  'devices.display_name',
  'devices.os_type',
  'devices.status',
  'm.is_pinned',
  'm.added_by',
  'm.added_at',
] as const

const membersIn = (db: Db, scope: Scope, groupId: string) =>
  db
    .selectFrom('devices')
    .innerJoin('device_group_devices as m', 'm.device_id', 'devices.id')
    .where('m.group_id', '=', groupId)
    .where(inScope(scope, 'devices.org_id'))
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))

/** By hostname. */
export async function listGroupMembers(
  db: Db,
  scope: Scope,
  groupId: string,
  query: CursorPageQuery,
): Promise<CursorPage<GroupMember>> {
  const found = membersIn(db, scope, groupId)
  return readCursorPage(
    found,
    query,
    { by: ['devices.hostname', 'devices.id'], keyOf: ({ hostname, id }) => [hostname, id] },
    (q) => q.select(columns),
    (row) => memberRows.read(row) as GroupMember,
  )
}

export async function findGroupMember(
  db: Db,
  scope: Scope,
  groupId: string,
  deviceId: string,
): Promise<GroupMember | undefined> {
  const found = membersIn(db, scope, groupId).select(columns).where('devices.id', '=', deviceId)
  const row = await found.executeTakeFirst()
  return row && (memberRows.read(row) as GroupMember)
}

/** Newest first. */
export async function listChanges(
  db: Db,
  scope: Scope,
  groupId: string,
  query: CursorPageQuery,
): Promise<CursorPage<GroupChange>> {
  const found = db
    .selectFrom('device_group_changes as c')
    .innerJoin('devices', 'devices.id', 'c.device_id')
    .where('c.group_id', '=', groupId)
    .where(inScope(scope, 'devices.org_id'))
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))
  return readCursorPage(
    found,
    query,
    { by: ['c.created_at', 'c.id'], direction: 'desc', keyOf: ({ createdAt, id }) => [createdAt, id] },
    (q) => q.select(['c.id', 'c.device_id', 'devices.hostname', 'c.action', 'c.reason', 'c.created_at']),
    (row) => changeRows.read(row) as GroupChange,
  )
}

/**
 * The named devices, all of the group's organization. @throws not_found for those the caller cannot see or that are
 * elsewhere, whether or not they exist
 */
export async function getDevices(
  db: Db,
  scope: Scope,
  { orgId }: DeviceGroup,
  ids: readonly string[],
): Promise<{ id: string; siteId: string | null }[]> {
  const rows = await db
    .selectFrom('devices')
    .select(['id', 'site_id as siteId'])
    .where('org_id', '=', orgId)
    .where(inScope(scope, 'devices.org_id'))
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))
    .where('id', 'in', ids)
    .execute()
  const seen = new Set(rows.map(({ id }) => id))
  const missing = ids.flatMap((id, i) => (seen.has(id) ? [] : [i]))
  if (missing.length === 0) return rows
  throw new Problem('not_found', 'Device not found', {
    details: missing.map((i) => ({ path: `body.deviceIds.${i}`, message: 'Device not found' })),
  })
}

type Reason = GroupChange['reason']

/** Adds devices; returns those that were not members yet. */
export async function addMembers(
  db: Db,
  groupId: string,
  deviceIds: readonly string[],
  { reason, now }: { reason: Reason; now: Instant },
): Promise<string[]> {
  const rest = {
    group_id: groupId,
    is_pinned: reason === 'pinned' ? 1 : 0,
    added_by: reason === 'filter_match' ? 'dynamic_rule' : 'manual',
    added_at: now,
  }
  const added: string[] = []
  for (const part of parts(deviceIds)) {
    const rows = await db
      .insertInto('device_group_devices')
      .values(part.map((deviceId) => ({ ...rest, device_id: deviceId })))
      .onConflict((c) => c.doNothing())
      .returning('device_id')
      .execute()
    added.push(...rows.map((row) => row.device_id))
  }
  await recordChanges(db, groupId, added, { action: 'added', reason, now })
  return added
}

/** Removes devices; returns those that were members. A pinned device stays when the filter stops matching it. */
export async function removeMembers(
  db: Db,
  groupId: string,
  deviceIds: readonly string[],
  { reason, now }: { reason: Reason; now: Instant },
): Promise<string[]> {
  const taken: string[] = []
  for (const part of parts(deviceIds)) {
    const rows = await db
      .deleteFrom('device_group_devices')
      .where('group_id', '=', groupId)
      .where('device_id', 'in', part)
      .$if(reason === 'filter_unmatch', (q) => q.where('is_pinned', '=', 0))
      .returning('device_id')
      .execute()
    taken.push(...rows.map((row) => row.device_id))
  }
  await recordChanges(db, groupId, taken, { action: 'removed', reason, now })
  return taken
}

export async function pinMember(db: Db, groupId: string, deviceId: string, isPinned: boolean): Promise<void> {
  await db
    .updateTable('device_group_devices')
    .set({ is_pinned: isPinned ? 1 : 0, ...(!isPinned && { added_by: 'dynamic_rule' }) })
    .where('group_id', '=', groupId)
    .where('device_id', '=', deviceId)
    .execute()
}

/** Devices that stay in a dynamic group whatever its filter matches: no filter finds them again. */
export const countPinned = (db: Db, scope: Scope, groupId: string): Promise<number> =>
  countRowsOf(membersIn(db, scope, groupId).where('m.is_pinned', '=', 1))

async function recordChanges(
  db: Db,
  groupId: string,
  deviceIds: readonly string[],
  { action, reason, now }: { action: GroupChange['action']; reason: Reason; now: Instant },
): Promise<void> {
  const rest = { group_id: groupId, action, reason, created_at: now }
  for (const part of parts(deviceIds)) {
    const rows = part.map((deviceId) => ({ id: newId(), device_id: deviceId, ...rest }))
    await db.insertInto('device_group_changes').values(rows).execute()
    await deleteOldestChanges(db, groupId)
  }
}

/** Changes kept of a group: a filter whose matches change every minute would add millions in a day. */
const maxChanges = 10_000

/** Deletes up to twice as many changes as one batch adds: a group above the limit shrinks to it. */
async function deleteOldestChanges(db: Db, groupId: string): Promise<void> {
  const oldest = db
    .selectFrom('device_group_changes')
    .select('id')
    .where('group_id', '=', groupId)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .offset(maxChanges)
    .limit(2 * batchSize)
  await db.deleteFrom('device_group_changes').where('id', 'in', oldest).execute()
}

const batchSize = 1000

/** Splits ids into batches that fit into one statement. */
function* parts(ids: readonly string[]): Generator<string[]> {
  for (let at = 0; at < ids.length; at += batchSize) yield ids.slice(at, at + batchSize)
}

const retentionDays = 90

export async function sweepChanges(db: Db, now: Instant): Promise<void> {
  await db
    .deleteFrom('device_group_changes')
    .where('created_at', '<', addSeconds(now, -retentionDays * 24 * 3600))
    .execute()
}
