import { expressionBuilder } from 'kysely'
import { systemScope } from '../core/scope.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { inScope } from '../storage/query/scope.ts'
import type { Tables } from '../storage/schema/tables.ts'
import { type StatusChange, statusChangeColumns } from './events.ts'

/* State of devices that changes with time: across all tenants, by the service itself. */

/** Longest duration of an update before it counts as failed and the device as offline. */
const updateSeconds = 300

const watching = ['connected', 'failover'] as const

/** Cutoffs: silent since `before`, in maintenance until `now`. */
export type LivenessCutoff = { now: Instant; before: Instant }

const eb = expressionBuilder<Tables, 'devices'>()

/** A device that updates has a separate limit. */
const isSilent = ({ before }: Pick<LivenessCutoff, 'before'>) =>
  eb.and([eb('status', '=', 'online'), eb('last_seen_at', '<', before)])

/** Whether or not it was seen since: the agent that still reports is the old one. */
const isLate = ({ now }: LivenessCutoff) =>
  eb.and([eb('update_state', '=', 'updating'), eb('update_since', '<', addSeconds(now, -updateSeconds))])

const isMaintenanceOver = ({ now }: LivenessCutoff) =>
  eb.and([eb('status', '=', 'maintenance'), eb('maintenance_until', '<=', now)])

const isWatchdogSilent = ({ before }: LivenessCutoff) =>
  eb.and([eb('watchdog_status', 'in', watching), eb('watchdog_seen_at', '<', before)])

/**
 * All in one scan of the table: an index over columns that every heartbeat changes would make each heartbeat slower.
 */
export async function findOverdue(
  db: Db,
  due: LivenessCutoff,
  after: string,
  limit: number,
): Promise<{ silent: string[]; late: string[]; maintained: string[]; unwatched: string[]; next?: string }> {
  const dues = [isSilent(due), isLate(due), isMaintenanceOver(due), isWatchdogSilent(due)]
  const rows = await db
    .selectFrom('devices')
    .select(['id', 'status', 'update_state', 'watchdog_status'])
    .select(['last_seen_at', 'update_since', 'maintenance_until', 'watchdog_seen_at'])
    .where(eb.or(dues))
    .where('id', '>', after)
    .where(inScope(systemScope, 'org_id'))
    .orderBy('id')
    .limit(limit)
    .execute()
  const idsOf = (isDue: (row: (typeof rows)[number]) => boolean) => rows.filter(isDue).map(({ id }) => id)
  return {
    silent: idsOf(({ status }) => status === 'online'),
    late: idsOf(({ update_state }) => update_state === 'updating'),
    maintained: idsOf(({ status }) => status === 'maintenance'),
    unwatched: idsOf(({ watchdog_status }) => watchdog_status !== null && watchdog_status !== 'offline'),
    ...(rows.length === limit && { next: rows.at(-1)!.id }),
  }
}

/** How many devices have each status, and how many of them are online and silent since before `late`. One scan as well. */
export const countDevices = (
  db: Db,
  late: Instant,
): Promise<{ status: string; count: number; late: number }[]> =>
  db
    .selectFrom('devices')
    .select(({ fn }) => [
      'status',
      fn.countAll<number>().as('count'),
      fn
        .countAll<number>()
        .filterWhere(isSilent({ before: late }))
        .as('late'),
    ])
    .where(inScope(systemScope, 'org_id'))
    .groupBy('status')
    .execute()

/** Agents that are online, by their version: as many rows as versions are in use. */
export const countAgentVersions = (db: Db): Promise<{ version: string; count: number }[]> =>
  db
    .selectFrom('devices')
    .select(({ fn }) => ['agent_version as version', fn.countAll<number>().as('count')])
    .where('status', '=', 'online')
    .where(inScope(systemScope, 'org_id'))
    .groupBy('agent_version')
    .execute()

/** Marks those of these devices whose watchdogs are still silent. */
export const markWatchdogsOffline = (db: Db, ids: readonly string[], due: LivenessCutoff) =>
  db
    .updateTable('devices')
    .set({ watchdog_status: 'offline' })
    .where('id', 'in', ids)
    .where(isWatchdogSilent(due))
    .returning(['id', 'org_id as orgId', 'hostname'])
    .execute()

/** Marks those of these devices that are still silent; a heartbeat or another process may have been faster. */
export async function markOffline(
  db: Db,
  ids: readonly string[],
  due: LivenessCutoff,
): Promise<StatusChange[]> {
  return db
    .updateTable('devices')
    .set({ status: 'offline' })
    .where('id', 'in', ids)
    .where(isSilent(due))
    .returning(statusChangeColumns)
    .execute()
}

/** Fails the updates of those of these devices that take too long; a status set by a user stays. */
export async function failLateUpdates(
  db: Db,
  ids: readonly string[],
  due: LivenessCutoff,
): Promise<StatusChange[]> {
  const tooLong = `It took longer than ${updateSeconds / 60} minutes`
  return db
    .updateTable('devices')
    .set({ update_state: 'failed', update_since: due.now, update_reason: tooLong })
    .set({ status: eb.case().when('status', '=', 'updating').then('offline').else(eb.ref('status')).end() })
    .where('id', 'in', ids)
    .where(isLate(due))
    .returning(statusChangeColumns)
    .execute()
}

/** Ends the maintenance of those of these devices whose time is over. */
export async function endMaintenance(
  db: Db,
  ids: readonly string[],
  due: LivenessCutoff,
): Promise<StatusChange[]> {
  return db
    .updateTable('devices')
    .set({
      status: eb.case().when('last_seen_at', '>=', due.before).then('online').else('offline').end(),
      maintenance_until: null,
    })
    .where('id', 'in', ids)
    .where(isMaintenanceOver(due))
    .returning(statusChangeColumns)
    .execute()
}
