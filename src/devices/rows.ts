import { columnsOf } from '../core/snake-case.ts'
import { pairsOf } from '../storage/query/expressions.ts'
import type { DeviceAgentColumns } from '../storage/schema/agent-tables.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { DeviceRow } from '../storage/schema/tables.ts'
import { Device } from './contract.ts'

type PublicRow = Omit<DeviceRow, 'token_hash' | 'enrollment_key_id' | 'enrollment_ip'> &
  Omit<DeviceAgentColumns, 'watchdog_token_hash' | 'token_issued_at' | 'auto_update'> & {
    tags: string
    custom_fields: string
    auto_update: number
  }

/** Fields that combine several columns into an object. */
const groups = {
  autoUpdate: { desired: 'auto_update', acknowledged: 'auto_update_acknowledged' },
  update: {
    version: 'update_version',
    state: 'update_state',
    since: 'update_since',
    reason: 'update_reason',
  },
} as const

export const deviceRows = rowsOf<PublicRow>()({
  json: ['tags', 'custom_fields', 'maintenance_window'],
  flags: ['is_virtual', 'is_headless', 'pending_reboot', 'auto_update', 'auto_update_acknowledged'],
  groups,
})

const { id: _, customFields: __, autoUpdate: ___, update: ____, ...own } = Device.shape

/** All columns except the credentials: the fields of the wire format. */
export const columns = [
  'devices.id',
  ...columnsOf(Object.keys(own) as (keyof typeof own)[]),
  ...Object.values(groups.autoUpdate),
  ...Object.values(groups.update),
] as const

/** Custom fields from their separate table, read with the device: a page takes one query for any number of rows. */
export const customFields = pairsOf(
  { table: 'device_custom_fields', by: 'device_id', of: 'devices.id' },
  'key',
  'value',
)

export const toDevice = (row: Partial<PublicRow>): Device => deviceRows.read(row) as unknown as Device

/** The columns of a device that are stored in its own row. */
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
