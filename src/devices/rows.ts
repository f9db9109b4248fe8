import { pairsOf } from '../storage/dialect.ts'
import { rowsOf } from '../storage/rows.ts'
import type { DeviceRow } from '../storage/tables.ts'
import type { Device } from './contract.ts'

type PublicRow = Omit<DeviceRow, 'token_hash' | 'enrollment_key_id' | 'enrollment_ip'> & {
  tags: string
  custom_fields: string
}

export const deviceRows = rowsOf<PublicRow>()({
  json: ['tags', 'custom_fields'],
  flags: ['is_virtual', 'is_headless', 'pending_reboot'],
})

/** Everything but the credentials. */
export const columns = [
  'devices.id',
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
  'device_role_source',
  'is_virtual',
  'virtualization_platform',
  'is_headless',
  'last_user',
  'uptime_seconds',
  'pending_reboot',
  'maintenance_until',
  'quarantined_at',
  'quarantined_reason',
  'watchdog_status',
  'created_at',
  'updated_at',
  'tags',
] as const

/** What lies in a table of its own, read with the device: a page is one query, however many rows it has. */
export const customFields = pairsOf(
  { table: 'device_custom_fields', by: 'device_id', of: 'devices.id' },
  'key',
  'value',
)

export const readDevice = (row: Partial<PublicRow>): Device => deviceRows.read(row) as unknown as Device

/** The columns of a device that are in its own row. */
export function rowOf({ tags: _, customFields: __, ...device }: Device) {
  return deviceRows.write(device)
}
