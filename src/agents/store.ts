import type { ExpressionBuilder } from 'kysely'
import { organizationScope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Device } from '../devices/contract.ts'
import { rowOf } from '../devices/rows.ts'
import { nameKeys } from '../devices/rules.ts'
import { getDevice } from '../devices/store.ts'
import type { Db } from '../storage/open.ts'
import { equalsText, isHash } from '../storage/query/expressions.ts'
import { forNoKeyUpdate, forUpdate } from '../storage/query/locks.ts'
import { prepared } from '../storage/query/prepared.ts'
import { rowList } from '../storage/query/row-list.ts'
import {
  type AgentDeviceRow,
  agentDeviceColumns,
  type DeviceMetricsColumns,
  type Tables,
} from '../storage/schema/tables.ts'
import type { MetricsReport } from './contract.ts'
import { type ColumnChanges, isEmpty, statusesEndedByHeartbeat } from './rules.ts'
import type { Rotation } from './tokens/rules.ts'
import { rotationColumns } from './tokens/store.ts'
import type { UpdateChange } from './upgrades/rules.ts'
import { targetRows } from './upgrades/store.ts'

/* An agent is its device: the queries of routes are by the id of the device that authenticated. */

export type AgentRow = AgentDeviceRow & {
  agent_id: string
  token_hash: string
  watchdog_token_hash: string | null
  partner_id: string
  org_deleted_at: string | null
  partner_deleted_at: string | null
}

const agentColumns = [
  ...agentDeviceColumns.map((column) => `devices.${column}` as const),
  'devices.agent_id',
  'devices.token_hash',
  'devices.watchdog_token_hash',
] as const

const tenantColumns = [
  'o.status as org_status',
  'o.deleted_at as org_deleted_at',
  'p.status as partner_status',
  'p.deleted_at as partner_deleted_at',
] as const

const agentIds = rowList<{ agent_id: string }>({ agent_id: 'text' })

/** Read with each heartbeat, which needs no further query in the common case. */
const agentsByAgentId = prepared((db, p: { agentIds: string }) =>
  targetRows(db)
    .innerJoin('organizations as o', 'o.id', 'devices.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .select(agentColumns)
    .select(tenantColumns)
    .select('o.partner_id')
    .select((eb) =>
      eb
        .selectFrom('agent_commands as c')
        .select((one) => one.lit(1).as('found'))
        .whereRef('c.device_id', '=', 'devices.id')
        .where(equalsText('c.status', 'pending'))
        .limit(1)
        .as('has_commands'),
    )
    .where('devices.agent_id', 'in', (eb) =>
      eb.selectFrom(agentIds.as(p.agentIds, 'asked')).select('asked.agent_id'),
    ),
)

/**
 * The devices of agents with the state of their tenants, by agent id; unknown ids are missing. The caller verifies
 * the token.
 */
export async function findAgents(db: Db, ids: readonly string[]): Promise<Map<string, AgentRow>> {
  const asked = agentIds.of(ids.map((agent_id) => ({ agent_id })))
  const rows = (await agentsByAgentId(db, { agentIds: asked })) as AgentRow[]
  return new Map(rows.map((row) => [row.agent_id, row]))
}

export const findAgent = async (db: Db, agentId: string): Promise<AgentRow | undefined> =>
  (await findAgents(db, [agentId])).get(agentId)

/** Whether the token belongs to the agent or the watchdog of any device. */
export async function isAgentToken(db: Db, tokenHash: string): Promise<boolean> {
  const has = (column: 'token_hash' | 'watchdog_token_hash') =>
    db.selectFrom('devices').select('id').where(isHash(column, tokenHash))
  const found = await has('token_hash').union(has('watchdog_token_hash')).executeTakeFirst()
  return found !== undefined
}

type TokenState = Pick<
  AgentRow,
  | 'id'
  | 'agent_id'
  | 'org_id'
  | 'status'
  | 'token_hash'
  | 'watchdog_token_hash'
  | 'org_status'
  | 'org_deleted_at'
  | 'partner_status'
  | 'partner_deleted_at'
> &
  Rotation

/** In no particular order; unknown ids are missing. */
export async function findTokenStates(db: Db, ids: readonly string[]): Promise<TokenState[]> {
  if (ids.length === 0) return []
  return db
    .selectFrom('devices')
    .innerJoin('organizations as o', 'o.id', 'devices.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .leftJoin('agent_rotations as r', 'r.device_id', 'devices.id')
    .select(['devices.id', 'devices.agent_id', 'devices.org_id', 'devices.status'])
    .select(['devices.token_hash', 'devices.watchdog_token_hash'])
    .select(rotationColumns)
    .select(tenantColumns)
    .where('devices.agent_id', 'in', ids)
    .execute()
}

type Credentials = {
  token_hash: string
  watchdog_token_hash: string
  token_issued_at: null
  enrollment_key_id: string
  enrollment_ip: string
}

export async function insertDevice(db: Db, device: Device, credentials: Credentials): Promise<void> {
  await db
    .insertInto('devices')
    .values({ ...rowOf(device), ...nameKeys(device), ...credentials })
    .execute()
}

/** The machine enrolled again: its record continues with new credentials. */
export async function replaceDevice(db: Db, device: Device, credentials: Credentials): Promise<void> {
  await db
    .updateTable('devices')
    .set({ ...rowOf(device), ...nameKeys(device), ...credentials })
    .where('id', '=', device.id)
    .execute()
}

type Place = { orgId: string; siteId: string | null; hostname: string }

const devicesAt = (db: Db, { orgId, siteId, hostname }: Place) =>
  db
    .selectFrom('devices')
    .select('devices.id')
    .where('org_id', '=', orgId)
    .where('hostname', '=', hostname)
    .where('site_id', siteId === null ? 'is' : '=', siteId)

/**
 * The device with this name and place whose agent has that token, including the previous and the pending one of a
 * rotation. Locked until the transaction ends.
 */
export async function findEnrolled(
  db: Db,
  place: Place,
  tokenHash: string,
  now: Instant,
): Promise<Device | undefined> {
  const rotating = db
    .selectFrom('agent_rotations')
    .select('device_id')
    .where((eb) =>
      eb.or([
        eb.and([eb('pending_token_hash', '=', tokenHash), eb('pending_until', '>', now)]),
        eb.and([eb('previous_token_hash', '=', tokenHash), eb('previous_until', '>', now)]),
      ]),
    )
  const found = devicesAt(db, place).where((eb) =>
    eb.or([eb('token_hash', '=', tokenHash), eb('devices.id', 'in', rotating)]),
  )
  const row = await forUpdate(found).executeTakeFirst()
  return row && getDevice(db, organizationScope(place.orgId), row.id)
}

/** The device in use with this name and place that enrolled last. */
export async function findNamesake(db: Db, place: Place): Promise<string | undefined> {
  const found = devicesAt(db, place).where('status', '!=', 'decommissioned')
  const row = await found.orderBy('enrolled_at', 'desc').orderBy('id', 'desc').limit(1).executeTakeFirst()
  return row?.id
}

export type Addresses = { last_seen_ip: string | null; told_addresses: string | null }

/** The addresses of the device, locked until the transaction ends: the row read with the heartbeat may be older. */
export async function lockAddresses(db: Db, id: string): Promise<Addresses | undefined> {
  const found = db.selectFrom('devices').select(['last_seen_ip', 'told_addresses']).where('id', '=', id)
  return forUpdate(found).executeTakeFirst()
}

/** The present status of the device, locked until the transaction ends. */
export async function lockStatus(db: Db, id: string): Promise<string> {
  const found = db.selectFrom('devices').select('status').where('id', '=', id)
  return (await forUpdate(found).executeTakeFirstOrThrow()).status
}

export async function saveAddresses(db: Db, id: string, addresses: string): Promise<void> {
  await db.updateTable('devices').set({ told_addresses: addresses }).where('id', '=', id).execute()
}

type Seen = { id: string; now: Instant; ip: string; uptime: number | null }

const revived = (eb: ExpressionBuilder<Tables, 'devices'>, states: readonly string[]) =>
  eb.case().when('status', 'in', states).then('online').else(eb.ref('status')).end()

const seeing = (db: Db, p: Seen, ended: readonly string[] = statusesEndedByHeartbeat) =>
  db
    .updateTable('devices')
    .set({ last_seen_at: p.now, last_seen_ip: p.ip, uptime_seconds: p.uptime })
    .set((eb) => ({ status: revived(eb, ended) }))
    .where('id', '=', p.id)

const sample = (p: MetricsColumns): MetricsColumns => ({
  cpu_percent: p.cpu_percent,
  ram_percent: p.ram_percent,
  ram_used_mb: p.ram_used_mb,
  disk_percent: p.disk_percent,
  disk_used_gb: p.disk_used_gb,
  process_count: p.process_count,
})

const seen = prepared((db, p: Seen) => seeing(db, p))
const sampled = prepared((db, p: Seen & DeviceMetricsColumns) =>
  seeing(db, p).set({ metrics_at: p.metrics_at, ...sample(p) }),
)

type Recorded = {
  changed: ColumnChanges
  metrics: MetricsReport | undefined
  update?: UpdateChange
}

/** One statement for any heartbeat; the two most frequent forms are prepared. */
export async function recordHeartbeat(
  db: Db,
  device: { id: string; uptime: number | null },
  { changed, metrics, update }: Recorded,
  { now, ip }: { now: Instant; ip: string },
): Promise<void> {
  const values = { ...device, now, ip }
  const samples = metrics && { metrics_at: now, ...metricsColumns(metrics) }
  if (isEmpty(changed) && !update) {
    await (samples ? sampled(db, { ...values, ...samples }) : seen(db, values))
    return
  }
  await seeing(
    db,
    values,
    update?.isOver ? [...statusesEndedByHeartbeat, 'updating'] : statusesEndedByHeartbeat,
  )
    .set({ ...changed, ...update?.columns, ...samples, updated_at: now })
    .execute()
}

/** A heartbeat that changes nothing but liveness, uptime and metrics, of a device in that status. */
export type UnchangedRow = MetricsColumns & {
  id: string
  status: string
  seen_at: Instant
  uptime: number | null
}

const unchangedRows = rowList<UnchangedRow>({
  id: 'text',
  status: 'text',
  seen_at: 'text',
  uptime: 'bigint',
  cpu_percent: 'double precision',
  ram_percent: 'double precision',
  ram_used_mb: 'double precision',
  disk_percent: 'double precision',
  disk_used_gb: 'double precision',
  process_count: 'bigint',
})

/** A row that another transaction keeps locked is left out, so that it does not delay the others. */
const sampledTogether = prepared((db, p: { rows: string }) =>
  db
    .updateTable('devices')
    .from(unchangedRows.as(p.rows, 'said'))
    .set((eb) => ({
      last_seen_at: eb.ref('said.seen_at'),
      uptime_seconds: eb.ref('said.uptime'),
      metrics_at: eb.ref('said.seen_at'),
      cpu_percent: eb.ref('said.cpu_percent'),
      ram_percent: eb.ref('said.ram_percent'),
      ram_used_mb: eb.ref('said.ram_used_mb'),
      disk_percent: eb.ref('said.disk_percent'),
      disk_used_gb: eb.ref('said.disk_used_gb'),
      process_count: eb.ref('said.process_count'),
    }))
    .whereRef('devices.id', '=', 'said.id')
    .whereRef('devices.status', '=', 'said.status')
    .where('devices.id', 'in', (eb) =>
      forNoKeyUpdate(
        eb
          .selectFrom('devices as free')
          .select('free.id')
          .where('free.id', 'in', (one) =>
            one.selectFrom(unchangedRows.as(p.rows, 'wanted')).select('wanted.id'),
          ),
        { skipLocked: true },
      ),
    )
    .returning('devices.id'),
)

const sampledAlone = prepared((db, p: UnchangedRow) =>
  db
    .updateTable('devices')
    .set({ last_seen_at: p.seen_at, uptime_seconds: p.uptime, metrics_at: p.seen_at, ...sample(p) })
    .where('id', '=', p.id)
    .where('status', '=', p.status),
)

/**
 * Records heartbeats of devices that are in the state they were last seen in; false for each whose device has changed
 * since, which `recordHeartbeat` has to record. One statement a row: where writes are serial it is the faster way, as
 * a statement over many rows copies each page before it changes it.
 */
export async function recordUnchangedOneByOne(db: Db, rows: readonly UnchangedRow[]): Promise<boolean[]> {
  const recorded: boolean[] = []
  for (const row of rows) recorded.push((await sampledAlone(db, row))[0]!.numUpdatedRows === 1n)
  return recorded
}

/**
 * The same in one statement, so one round trip. False as well for a device whose row another transaction keeps locked.
 */
export async function recordUnchangedTogether(db: Db, rows: readonly UnchangedRow[]): Promise<boolean[]> {
  const latest = new Map(rows.map((row) => [row.id, row]))
  const recorded = await sampledTogether(db, { rows: unchangedRows.of([...latest.values()]) })
  const ids = new Set(recorded.map(({ id }) => id))
  return rows.map(({ id }) => ids.has(id))
}

const watched = prepared((db, p: { id: string; now: Instant }) =>
  db.updateTable('devices').set({ watchdog_seen_at: p.now }).where('id', '=', p.id),
)

/** Records a report of the watchdog of a device. */
export async function recordWatchdog(
  db: Db,
  id: string,
  changed: ColumnChanges,
  now: Instant,
): Promise<void> {
  if (isEmpty(changed)) {
    await watched(db, { id, now })
    return
  }
  await db
    .updateTable('devices')
    .set({ ...changed, watchdog_seen_at: now, updated_at: now })
    .where('id', '=', id)
    .execute()
}

type MetricsColumns = Omit<DeviceMetricsColumns, 'metrics_at'>

export const metricsColumns = (metrics: MetricsReport): MetricsColumns => ({
  cpu_percent: metrics.cpuPercent ?? null,
  ram_percent: metrics.ramPercent ?? null,
  ram_used_mb: metrics.ramUsedMb ?? null,
  disk_percent: metrics.diskPercent ?? null,
  disk_used_gb: metrics.diskUsedGb ?? null,
  process_count: metrics.processCount ?? null,
})
