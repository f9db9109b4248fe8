import { fold } from '../core/fold.ts'
import type { Page, PageQuery } from '../core/page.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import { columnsOf } from '../core/snake-case.ts'
import type { Db } from '../storage/open.ts'
import { readPage } from '../storage/query/pages.ts'
import { prepared } from '../storage/query/prepared.ts'
import { preparedInScope } from '../storage/query/prepared-in-scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type {
  DeviceDiskRow,
  DeviceHardwareColumns,
  DeviceInterfaceRow,
  DeviceMetricsColumns,
  DeviceSoftwareRow,
} from '../storage/schema/tables.ts'
import { foldedContains } from '../storage/search/key-matching.ts'
import {
  type Device,
  type Disk,
  Hardware,
  type Metrics,
  type NetworkInterface,
  type Software,
} from './contract.ts'
import { toDevice } from './rows.ts'
import { deviceNotFound, deviceSelection, devicesIn } from './store.ts'

/* Data that agents report about a device. */

const hardwareRows = rowsOf<DeviceHardwareColumns>()()
const interfaceRows = rowsOf<DeviceInterfaceRow>()({ flags: ['is_primary'] })
const diskRows = rowsOf<DeviceDiskRow>()()
const metricsRows = rowsOf<DeviceMetricsColumns>()()
const softwareRows = rowsOf<DeviceSoftwareRow>()()

const hardwareColumns = columnsOf(Object.keys(Hardware.shape) as (keyof Hardware)[])

const metricsColumns = [
  'metrics_at',
  'cpu_percent',
  'ram_percent',
  'ram_used_mb',
  'disk_percent',
  'disk_used_gb',
  'process_count',
] as const

const recordById = preparedInScope((db, scope, p: { id: string }) =>
  devicesIn(db, ofOne(scope))
    .select([...deviceSelection, ...hardwareColumns, ...metricsColumns])
    .where('devices.id', '=', p.id),
)
const idInSight = preparedInScope((db, scope, p: { id: string }) =>
  devicesIn(db, ofOne(scope)).select('devices.id').where('devices.id', '=', p.id),
)
const interfacesOf = prepared((db, p: { id: string }) =>
  db.selectFrom('device_interfaces').selectAll().where('device_id', '=', p.id).orderBy('position'),
)
const disksOf = prepared((db, p: { id: string }) =>
  db.selectFrom('device_disks').selectAll().where('device_id', '=', p.id).orderBy('position'),
)

export type DeviceRecord = Device & {
  hardware: Hardware | null
  network: NetworkInterface[]
  disks: Disk[]
  metrics: Metrics | null
}

/** A device with its parts. @throws not_found, also for a device outside the scope */
export async function getDeviceRecord(db: Db, scope: Scope, id: string): Promise<DeviceRecord> {
  const [row] = await recordById(db, scope, { id })
  if (!row) throw deviceNotFound()
  const [interfaces, disks] = await Promise.all([interfacesOf(db, { id }), disksOf(db, { id })])
  return {
    ...toDevice(row),
    hardware: hardwareOf(row),
    network: interfaces.map((one) => interfaceRows.read(one)),
    disks: disks.map((one) => diskRows.read(one)),
    metrics: metricsOf(row),
  }
}

function hardwareOf(row: DeviceHardwareColumns): Hardware | null {
  const known = hardwareColumns.some((column) => row[column] !== null)
  return known ? hardwareRows.read(pick(row, hardwareColumns)) : null
}

function metricsOf(row: DeviceMetricsColumns): Metrics | null {
  const { metricsAt: recordedAt, ...sample } = metricsRows.read(pick(row, metricsColumns))
  return recordedAt === null ? null : { recordedAt, ...sample }
}

const pick = <Row, Column extends keyof Row>(row: Row, of: readonly Column[]) =>
  Object.fromEntries(of.map((column) => [column, row[column]])) as Pick<Row, Column>

/** @throws not_found, also for a device outside the scope */
export async function checkDevice(db: Db, scope: Scope, id: string): Promise<void> {
  if ((await idInSight(db, scope, { id })).length === 0) throw deviceNotFound()
}

/** Ordered by name. @throws not_found, also for a device outside the scope */
export async function listSoftware(
  db: Db,
  scope: Scope,
  deviceId: string,
  { name, ...page }: PageQuery & { name?: string | undefined },
): Promise<Page<Software>> {
  await checkDevice(db, scope, deviceId)
  const found = db
    .selectFrom('device_software')
    .where('device_id', '=', deviceId)
    .$if(name !== undefined, (q) => q.where(foldedContains('name_key', fold(name!))))
  const byName = (q: typeof found) => q.selectAll().orderBy('name_key').orderBy('position')
  return readPage(found, page, byName, (row) => softwareRows.read(row))
}
