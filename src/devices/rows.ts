import { pairsOf } from '../storage/dialect.ts'
import type { DeviceAgentColumns } from '../storage/schema/agent-tables.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { DeviceRow } from '../storage/schema/tables.ts'
import type { Device } from './contract.ts'

type PublicRow = Omit<DeviceRow, 'token_hash' | 'enrollment_key_id' | 'enrollment_ip'> &
  Omit<DeviceAgentColumns, 'watchdog_token_hash' | 'token_issued_at' | 'auto_update'> & {
    tags: string
    custom_fields: string
    auto_update: number
  }

export const deviceRows = rowsOf<PublicRow>()({
  json: ['tags', 'custom_fields'],
  flags: ['is_virtual', 'is_headless', 'pending_reboot', 'auto_update', 'auto_update_acknowledged'],
  groups: {
    autoUpdate: { desired: 'auto_update', acknowledged: 'auto_update_acknowledged' },
    update: {
      ...{ version: 'update_version', state: 'update_state' },
      ...{ since: 'update_since', reason: 'update_reason' },
    },
  },
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
  'watchdog_seen_at',
  'watchdog_version',
  'main_silent_since',
  'auto_update',
  'auto_update_acknowledged',
  'update_version',
  'update_state',
  'update_since',
  'update_reason',
  'possible_replacement_of',
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

export const toDevice = (row: Partial<PublicRow>): Device => deviceRows.read(row) as unknown as Device

/** The columns of a device that are in its own row. */
export function rowOf({ tags: _, customFields: __, autoUpdate, update, ...device }: Device) {
  const { desired, acknowledged } = autoUpdate
  const row = deviceRows.write({ ...device, autoUpdate: desired, autoUpdateAcknowledged: acknowledged })
  return { ...row, ...updateColumns(update) }
}

const updateColumns = (update: Device['update']) => ({
  update_version: update?.version ?? null,
  update_state: update?.state ?? null,
  update_since: update?.since ?? null,
  update_reason: update?.reason ?? null,
})
