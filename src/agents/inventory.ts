import type { Kysely } from 'kysely'
import { fold } from '../core/fold.ts'
import type { Db } from '../storage/open.ts'
import type {
  DeviceDiskRow,
  DeviceHardwareColumns,
  DeviceInterfaceRow,
  DeviceSoftwareRow,
} from '../storage/schema/tables.ts'
import type { DiskReport, HardwareReport, InterfaceReport, Inventory } from './contract.ts'

/** Each part that is given replaces the stored one. */
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
  // The three tables share the columns that are used here.
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
