import type { ExpressionBuilder } from 'kysely'
import { Problem } from '../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../core/page.ts'
import { isNarrowed, ofOne, type Scope } from '../core/scope.ts'
import { isForeignKeyViolation } from '../storage/database-errors.ts'
import type { Db } from '../storage/open.ts'
import { countFiltersOn, countRowsOf } from '../storage/query/counts.ts'
import { contains, idStartsWith } from '../storage/query/expressions.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { readById, readPage } from '../storage/query/pages.ts'
import { inScope, inSites, isScopedGroup } from '../storage/query/scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { DeviceGroupRow, Tables } from '../storage/schema/tables.ts'
import type { DeviceGroup } from './contract.ts'
import type { GroupUse } from './rules.ts'

type Row = { [K in keyof DeviceGroupRow]: K extends 'type' ? string : DeviceGroupRow[K] }

const groupRows = rowsOf<Row & { device_count: number }>()()

const read = (row: Row & { device_count: number }): DeviceGroup => groupRows.read(row) as DeviceGroup

const columns = [
  'id',
  'org_id',
  'site_id',
  'name',
  'type',
  'filter_id',
  'parent_id',
  'evaluated_at',
  'evaluation_error',
  'created_at',
  'updated_at',
] as const

/**
 * Callers restricted to groups see these groups; callers restricted to sites see the groups of these sites. Groups
 * without a site are hidden from callers restricted to sites.
 */
const groupsIn = (db: Db, scope: Scope) => {
  const byGroup = scope.kind === 'organization' && scope.groupIds !== null
  return db
    .selectFrom('device_groups')
    .where(inScope(scope, 'device_groups.org_id'))
    .where(byGroup ? isScopedGroup(scope, 'device_groups.id') : inSites(scope, 'device_groups.site_id'))
}

export const countGroupsIn = (db: Db, scope: Scope): Promise<number> => countRowsOf(groupsIn(db, scope))

/** With the number of devices that the caller can see in the group. */
const columnsIn = (scope: Scope) => (eb: ExpressionBuilder<Tables, 'device_groups'>) => {
  const members = eb
    .selectFrom('device_group_devices')
    .whereRef('device_group_devices.group_id', '=', 'device_groups.id')
    // A caller restricted to groups sees only their own groups, and all devices in them.
    .$if(isNarrowed(scope), (q) =>
      q
        .innerJoin('devices', 'devices.id', 'device_group_devices.device_id')
        .where(inSites(scope, 'devices.site_id')),
    )
  const count = members.select((m) => m.fn.countAll<number>().as('n'))
  return [...columns.map((column) => eb.ref(column).as(column)), count.as('device_count')] as const
}

export type GroupQuery = PageQuery & {
  orgId?: string | undefined
  siteId?: string | undefined
  type?: string | undefined
  parentId?: string | undefined
  search?: string | undefined
  idPrefix?: string | undefined
}

/** Ordered by name. */
export async function listGroups(db: Db, scope: Scope, query: GroupQuery): Promise<Page<DeviceGroup>> {
  const { orgId, siteId, type, parentId, search, idPrefix } = query
  const found = groupsIn(db, scope)
    .$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
    .$if(siteId !== undefined, (q) => q.where('site_id', '=', siteId!))
    .$if(type !== undefined, (q) => q.where('type', '=', type!))
    .$if(parentId !== undefined, (q) => q.where('parent_id', '=', parentId!))
    .$if(idPrefix !== undefined, (q) => q.where(idStartsWith('device_groups.id', idPrefix!)))
    .$if(!!search, (q) => q.where(contains('name', search!)))
  const byName = (q: typeof found) => q.select(columnsIn(scope)).orderBy('name').orderBy('id')
  return readPage(found, query, byName, (row) => read(row as never))
}

/** The settings of groups, without counts of their devices, by id. */
export async function listGroupSettings(
  db: Db,
  scope: Scope,
  page: IdPage,
): Promise<Omit<DeviceGroup, 'deviceCount'>[]> {
  const rows = await readById(groupsIn(db, scope), 'device_groups.id', page, (q) => q.select(columns))
  return rows.map((row) => groupRows.read(row as never) as unknown as Omit<DeviceGroup, 'deviceCount'>)
}

export async function findGroup(db: Db, scope: Scope, id: string): Promise<DeviceGroup | undefined> {
  const row = await groupsIn(db, ofOne(scope))
    .select(columnsIn(scope))
    .where('id', '=', id)
    .executeTakeFirst()
  return row && read(row as never)
}

/** @throws not_found, also for a group outside the scope */
export async function getGroup(db: Db, scope: Scope, id: string): Promise<DeviceGroup> {
  const group = await findGroup(db, scope, id)
  if (!group) throw new Problem('not_found', 'Device group not found')
  return group
}

/** The same, locked: nobody else changes the group or its members until the transaction ends. @throws not_found */
export async function lockGroup(db: Db, scope: Scope, id: string): Promise<DeviceGroup> {
  await forUpdate(groupsIn(db, ofOne(scope)).select('id').where('id', '=', id)).execute()
  return getGroup(db, scope, id)
}

export async function insertGroup(db: Db, { deviceCount, ...group }: DeviceGroup): Promise<void> {
  await db.insertInto('device_groups').values(groupRows.write(group)).execute()
}

export async function changeGroup(db: Db, scope: Scope, group: DeviceGroup): Promise<void> {
  const { id, name, filterId, parentId, updatedAt } = group
  await db
    .updateTable('device_groups')
    .set({ name, filter_id: filterId, parent_id: parentId, updated_at: updatedAt })
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'device_groups.org_id'))
    .execute()
}

/** @throws conflict when a group was added under it concurrently */
export async function removeGroup(db: Db, scope: Scope, id: string): Promise<void> {
  await db
    .deleteFrom('device_groups')
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'device_groups.org_id'))
    .execute()
    .catch((error: unknown) => {
      if (isForeignKeyViolation(error)) throw new Problem('conflict', 'The group is in use')
      throw error
    })
}

/**
 * The number of members restricted to a group, of groups under it, and of filters with a condition on it. The caller has
 * checked that the group is visible.
 */
export async function countUses(
  db: Db,
  scope: Scope,
  group: Pick<DeviceGroup, 'id' | 'orgId'>,
): Promise<GroupUse> {
  const members = db
    .selectFrom('organization_membership_groups')
    .innerJoin('organization_memberships as m', 'm.id', 'organization_membership_groups.membership_id')
    .where(inScope(scope, 'm.org_id'))
    .where('group_id', '=', group.id)
  const groups = db
    .selectFrom('device_groups')
    .where(inScope(scope, 'device_groups.org_id'))
    .where('parent_id', '=', group.id)
  return {
    memberships: await countRowsOf(members),
    groups: await countRowsOf(groups),
    filters: await countFiltersOn(db, scope, group),
  }
}

/** Whether `id` is the group `below` itself or one of its ancestors. */
export async function isAncestor(db: Db, scope: Scope, id: string, below: string): Promise<boolean> {
  const rows = await db
    .withRecursive('above(id, parent_id)', (cte) =>
      cte
        .selectFrom('device_groups')
        .select(['id', 'parent_id'])
        .where(inScope(ofOne(scope), 'device_groups.org_id'))
        .where('id', '=', below)
        .union(
          cte
            .selectFrom('device_groups')
            .innerJoin('above', 'above.parent_id', 'device_groups.id')
            .select(['device_groups.id', 'device_groups.parent_id']),
        ),
    )
    .selectFrom('above')
    .select('above.id')
    .where('above.id', '=', id)
    .execute()
  return rows.length > 0
}
