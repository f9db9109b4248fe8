import type { ExpressionBuilder, Kysely } from 'kysely'
import { fold } from '../core/fold.ts'
import { only } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Device } from '../devices/contract.ts'
import { rowOf } from '../devices/rows.ts'
import { nameKeys } from '../devices/rules.ts'
import { getDevice } from '../devices/store.ts'
import { forUpdate, prepared } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'
import type {
  AgentDeviceRow,
  DeviceDiskRow,
  DeviceHardwareColumns,
  DeviceInterfaceRow,
  DeviceMetricsColumns,
  DeviceRow,
  DeviceSoftwareRow,
  Tables,
} from '../storage/tables.ts'
import type { DiskReport, HardwareReport, InterfaceReport, Inventory, MetricsReport } from './contract.ts'
import { silentStates } from './rules.ts'

/* An agent is its device: each query below is by the id of the device that authenticated. */

export type AgentRow = AgentDeviceRow & {
  token_hash: string
  org_status: string
  org_deleted_at: string | null
  partner_status: string
  partner_deleted_at: string | null
}

const agentColumns = [
  'devices.id',
  'devices.org_id',
  'devices.hostname',
  'devices.os_version',
  'devices.os_build',
  'devices.agent_version',
  'devices.status',
  'devices.device_role',
  'devices.device_role_source',
  'devices.is_virtual',
  'devices.virtualization_platform',
  'devices.is_headless',
  'devices.last_user',
  'devices.uptime_seconds',
  'devices.pending_reboot',
  'devices.last_seen_ip',
  'devices.token_hash',
] as const

const agentRows = (db: Db) =>
  db
    .selectFrom('devices')
    .innerJoin('organizations as o', 'o.id', 'devices.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .select(agentColumns)
    .select(['o.status as org_status', 'o.deleted_at as org_deleted_at'])
    .select(['p.status as partner_status', 'p.deleted_at as partner_deleted_at'])

const agentByAgentId = prepared((db, p: { agentId: string }) =>
  agentRows(db).where('devices.agent_id', '=', p.agentId),
)

/** The device of an agent with the state of its tenant; the agent's token decides whether it is let in. */
export async function findAgent(db: Db, agentId: string): Promise<AgentRow | undefined> {
  const [row] = await agentByAgentId(db, { agentId })
  return row as AgentRow | undefined
}

/** Those there are, in no order. */
export async function findAgents(
  db: Db,
  agentIds: readonly string[],
): Promise<(AgentRow & { agent_id: string })[]> {
  if (agentIds.length === 0) return []
  const rows = agentRows(db).select('devices.agent_id').where('devices.agent_id', 'in', agentIds)
  return (await rows.execute()) as (AgentRow & { agent_id: string })[]
}

type Credentials = { token_hash: string; enrollment_key_id: string; enrollment_ip: string }

export async function insertDevice(db: Db, device: Device, credentials: Credentials): Promise<void> {
  await db
    .insertInto('devices')
    .values({ ...rowOf(device), ...nameKeys(device), ...credentials })
    .execute()
}

/** The machine enrolls again: its record goes on with other credentials. */
export async function replaceDevice(db: Db, device: Device, credentials: Credentials): Promise<void> {
  await db
    .updateTable('devices')
    .set({ ...rowOf(device), ...nameKeys(device), ...credentials })
    .where('id', '=', device.id)
    .execute()
}

/** The device of this name in this place whose agent has that token. It is held until the transaction ends. */
export async function findEnrolled(
  db: Db,
  where: { orgId: string; siteId: string | null; hostname: string },
  tokenHash: string,
): Promise<Device | undefined> {
  const { orgId, siteId, hostname } = where
  const found = db
    .selectFrom('devices')
    .select('devices.id')
    .where('org_id', '=', orgId)
    .where('hostname', '=', hostname)
    .where('token_hash', '=', tokenHash)
    .where('site_id', siteId === null ? 'is' : '=', siteId)
  const row = await forUpdate(found).executeTakeFirst()
  return row && getDevice(db, only(orgId), row.id)
}

export type Addresses = { last_seen_ip: string | null; told_addresses: string | null }

/** From where the device reported, held until the transaction ends: what a heartbeat came with may be older. */
export async function lockAddresses(db: Db, id: string): Promise<Addresses | undefined> {
  const found = db.selectFrom('devices').select(['last_seen_ip', 'told_addresses']).where('id', '=', id)
  return forUpdate(found).executeTakeFirst()
}

export async function keepTold(db: Db, id: string, told: string): Promise<void> {
  await db.updateTable('devices').set({ told_addresses: told }).where('id', '=', id).execute()
}

type Seen = { id: string; now: Instant; ip: string; uptime: number | null }

const revived = (eb: ExpressionBuilder<Tables, 'devices'>) =>
  eb.case().when('status', 'in', silentStates).then('online').else(eb.ref('status')).end()

const seeing = (db: Db, p: Seen) =>
  db
    .updateTable('devices')
    .set({ last_seen_at: p.now, last_seen_ip: p.ip, uptime_seconds: p.uptime })
    .set((eb) => ({ status: revived(eb) }))
    .where('id', '=', p.id)

const sample = (p: DeviceMetricsColumns): DeviceMetricsColumns => ({
  metrics_at: p.metrics_at,
  cpu_percent: p.cpu_percent,
  ram_percent: p.ram_percent,
  ram_used_mb: p.ram_used_mb,
  disk_percent: p.disk_percent,
  disk_used_gb: p.disk_used_gb,
  process_count: p.process_count,
})

const seen = prepared((db, p: Seen) => seeing(db, p))
const sampled = prepared((db, p: Seen & DeviceMetricsColumns) => seeing(db, p).set(sample(p)))

/** One statement, whatever the heartbeat carries; the two that nearly all are, ready-made. */
export async function recordHeartbeat(
  db: Db,
  device: { id: string; uptime: number | null },
  { changed, metrics }: { changed: Partial<DeviceRow>; metrics: MetricsReport | undefined },
  { now, ip }: { now: Instant; ip: string },
): Promise<void> {
  const values = { ...device, now, ip }
  const measured = metrics && metricsColumns(metrics, now)
  if (Object.keys(changed).length === 0) {
    await (measured ? sampled(db, { ...values, ...measured }) : seen(db, values))
    return
  }
  await seeing(db, values)
    .set({ ...changed, ...measured, updated_at: now })
    .execute()
}

const metricsColumns = (metrics: MetricsReport, now: Instant): DeviceMetricsColumns => ({
  metrics_at: now,
  cpu_percent: metrics.cpuPercent ?? null,
  ram_percent: metrics.ramPercent ?? null,
  ram_used_mb: metrics.ramUsedMb ?? null,
  disk_percent: metrics.diskPercent ?? null,
  disk_used_gb: metrics.diskUsedGb ?? null,
  process_count: metrics.processCount ?? null,
})

/** Each part that is given replaces what was there. */
export async function saveInventory(db: Db, deviceId: string, inventory: Inventory): Promise<void> {
  const { hardware, network, disks, software } = inventory
  if (hardware) {
    await db.updateTable('devices').set(hardwareColumns(hardware)).where('id', '=', deviceId).execute()
  }
  if (network) {
    const rows = network.map((one, position) => interfaceRow(deviceId, position, one))
    await replace(
      db,
      'device_interfaces',
      deviceId,
      rows.filter((row) => row.interface_name !== ''),
    )
  }
  if (disks) {
    const rows = disks.map((one, position) => diskRow(deviceId, position, one))
    await replace(
      db,
      'device_disks',
      deviceId,
      rows.filter((row) => row.mount_point !== ''),
    )
  }
  if (software) {
    const rows = software.map(
      (one, position): DeviceSoftwareRow => ({
        device_id: deviceId,
        position,
        name: one.name ?? '',
        name_key: fold(one.name ?? ''),
        version: one.version ?? null,
        publisher: one.publisher ?? null,
        install_date: one.installDate ?? null,
        install_location: one.installLocation ?? null,
      }),
    )
    await replace(
      db,
      'device_software',
      deviceId,
      rows.filter((row) => row.name !== ''),
    )
  }
}

type Parts = {
  device_interfaces: DeviceInterfaceRow
  device_disks: DeviceDiskRow
  device_software: DeviceSoftwareRow
}

async function replace<T extends keyof Parts>(
  db: Db,
  table: T,
  deviceId: string,
  rows: Parts[T][],
): Promise<void> {
  // The three tables are alike in what is said of them here.
  const parts = db as unknown as Kysely<{ device_disks: { device_id: string } }>
  const name = table as 'device_disks'
  await parts.deleteFrom(name).where('device_id', '=', deviceId).execute()
  for (let at = 0; at < rows.length; at += 100) {
    await parts
      .insertInto(name)
      .values(rows.slice(at, at + 100))
      .execute()
  }
}

function hardwareColumns(report: HardwareReport): DeviceHardwareColumns {
  return {
    manufacturer: report.manufacturer ?? null,
    model: report.model ?? null,
    serial_number: report.serialNumber ?? null,
    cpu_model: report.cpuModel ?? null,
    cpu_cores: report.cpuCores ?? null,
    cpu_threads: report.cpuThreads ?? null,
    ram_total_mb: report.ramTotalMb === undefined ? null : Math.round(report.ramTotalMb),
    disk_total_gb: report.diskTotalGb ?? null,
    gpu_model: report.gpuModel ?? null,
    motherboard_manufacturer: report.motherboardManufacturer ?? null,
    motherboard_model: report.motherboardModel ?? null,
    bios_version: report.biosVersion ?? null,
  }
}

function interfaceRow(deviceId: string, position: number, report: InterfaceReport): DeviceInterfaceRow {
  return {
    device_id: deviceId,
    position,
    interface_name: report.interfaceName ?? report.name ?? '',
    mac_address: report.macAddress ?? report.mac ?? null,
    ip_address: report.ipAddress ?? report.ip ?? null,
    ip_type: report.ipType ?? null,
    is_primary: report.isPrimary ? 1 : 0,
    public_ip: report.publicIp ?? null,
  }
}

function diskRow(deviceId: string, position: number, report: DiskReport): DeviceDiskRow {
  return {
    device_id: deviceId,
    position,
    mount_point: report.mountPoint ?? '',
    device: report.device ?? null,
    fs_type: report.fsType ?? null,
    total_gb: report.totalGb ?? null,
    used_gb: report.usedGb ?? null,
    free_gb: report.freeGb ?? null,
    used_percent: report.usedPercent ?? null,
    health: report.health ?? null,
  }
}
