import { Problem } from '../core/errors.ts'
import { offsetOf, type Page, type PageQuery, toPage, totalFrom } from '../core/page.ts'
import type { Scope } from '../core/scope.ts'
import { countOf } from '../storage/counts.ts'
import { contains, inGroups, inScope, inSites, preparedInScope } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'
import { rowsOf } from '../storage/rows.ts'
import type {
  DeviceDiskRow,
  DeviceHardwareColumns,
  DeviceInterfaceRow,
  DeviceMetricsColumns,
  DeviceRow,
} from '../storage/tables.ts'
import type { Device, Disk, Hardware, Metrics, NetworkInterface } from './contract.ts'

type PublicDeviceRow = Omit<DeviceRow, 'token_hash' | 'enrollment_key_id' | 'enrollment_ip'>

const deviceRows = rowsOf<PublicDeviceRow>()({ flags: ['is_virtual', 'is_headless', 'pending_reboot'] })
const hardwareRows = rowsOf<DeviceHardwareColumns>()()
const interfaceRows = rowsOf<DeviceInterfaceRow>()({ flags: ['is_primary'] })
const diskRows = rowsOf<DeviceDiskRow>()()
const metricsRows = rowsOf<DeviceMetricsColumns>()()

/** Everything but the credentials. */
const columns = [
  'id',
  'org_id',
  'site_id',
  'agent_id',
  'hostname',
  'display_name',
  'os_type',
  'os_version',
  'os_build',
  'architecture',
  'agent_version',
  'status',
  'last_seen_at',
  'last_seen_ip',
  'enrolled_at',
  'device_role',
  'is_virtual',
  'virtualization_platform',
  'is_headless',
  'last_user',
  'uptime_seconds',
  'pending_reboot',
  'created_at',
  'updated_at',
] as const

const hardwareColumns = [
  'manufacturer',
  'model',
  'serial_number',
  'cpu_model',
  'cpu_cores',
  'cpu_threads',
  'ram_total_mb',
  'disk_total_gb',
  'gpu_model',
  'motherboard_manufacturer',
  'motherboard_model',
  'bios_version',
] as const

const metricsColumns = [
  'metrics_at',
  'cpu_percent',
  'ram_percent',
  'ram_used_mb',
  'disk_percent',
  'disk_used_gb',
  'process_count',
] as const

const devicesIn = (db: Db, scope: Scope) =>
  db
    .selectFrom('devices')
    .where(inScope(scope, 'devices.org_id'))
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))

export type DeviceQuery = PageQuery & {
  orgId?: string | undefined
  siteId?: string | undefined
  status?: string | undefined
  osType?: string | undefined
  search?: string | undefined
}

const byHostname = preparedInScope((db, scope, p: { limit: number; offset: number }) =>
  devicesIn(db, scope).select(columns).orderBy('hostname').orderBy('id').limit(p.limit).offset(p.offset),
)
const howMany = preparedInScope((db, scope) =>
  devicesIn(db, scope).select((eb) => eb.fn.countAll<number>().as('total')),
)

/** By hostname. */
export async function listDevices(db: Db, scope: Scope, query: DeviceQuery): Promise<Page<Device>> {
  const { orgId, siteId, status, osType, search } = query
  const isPlain = [orgId, siteId, status, osType, search].every((one) => one === undefined || one === '')
  const found = () =>
    devicesIn(db, scope)
      .$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
      .$if(siteId !== undefined, (q) => q.where('site_id', '=', siteId!))
      .$if(status !== undefined, (q) => q.where('status', '=', status!))
      .$if(osType !== undefined, (q) => q.where('os_type', '=', osType!))
      .$if(search !== undefined && search !== '', (q) =>
        q.where((eb) => eb.or([contains('hostname', search!), contains('display_name', search!)])),
      )
  const part = { limit: query.limit, offset: offsetOf(query) }
  const rows = await (isPlain
    ? byHostname(db, scope, part)
    : found()
        .select(columns)
        .orderBy('hostname')
        .orderBy('id')
        .limit(part.limit)
        .offset(part.offset)
        .execute())
  const count = async () => (isPlain ? (await howMany(db, scope, {}))[0]!.total : countOf(found()))
  const total = totalFrom(rows.length, query) ?? (await count())
  return toPage(
    rows.map((row) => deviceRows.read(row) as Device),
    total,
    query,
  )
}

/** @throws not_found, also for a device outside the scope */
export async function getDevice(db: Db, scope: Scope, id: string): Promise<Device> {
  const row = await devicesIn(db, scope).select(columns).where('id', '=', id).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Device not found')
  return deviceRows.read(row) as Device
}

/** The parts of a device's record, once the device itself was found within the caller's scope. */
export async function getInventory(
  db: Db,
  device: Device,
): Promise<{
  hardware: Hardware | null
  network: NetworkInterface[]
  disks: Disk[]
  metrics: Metrics | null
}> {
  const hardware = await db
    .selectFrom('devices')
    .select(hardwareColumns)
    .where('id', '=', device.id)
    .executeTakeFirstOrThrow()
  const sample = await db
    .selectFrom('devices')
    .select(metricsColumns)
    .where('id', '=', device.id)
    .executeTakeFirstOrThrow()
  const interfaces = await db
    .selectFrom('device_interfaces')
    .selectAll()
    .where('device_id', '=', device.id)
    .orderBy('position')
    .execute()
  const disks = await db
    .selectFrom('device_disks')
    .selectAll()
    .where('device_id', '=', device.id)
    .orderBy('position')
    .execute()
  return {
    hardware: Object.values(hardware).some((value) => value !== null) ? hardwareRows.read(hardware) : null,
    network: interfaces.map((row) => interfaceRows.read(row)),
    disks: disks.map((row) => diskRows.read(row)),
    metrics: toMetrics(metricsRows.read(sample)),
  }
}

function toMetrics({ metricsAt, ...sample }: ReturnType<typeof metricsRows.read>): Metrics | null {
  return metricsAt === null ? null : ({ recordedAt: metricsAt, ...sample } as Metrics)
}
