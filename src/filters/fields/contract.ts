import { z } from 'zod'
import { architecture, deviceRole, deviceStatus, osType } from '../../devices/contract.ts'

/** Every operator. */
export const operators = [
  'equals',
  'notEquals',
  'greaterThan',
  'greaterThanOrEquals',
  'lessThan',
  'lessThanOrEquals',
  'contains',
  'notContains',
  'startsWith',
  'endsWith',
  'matches',
  'in',
  'notIn',
  'hasAny',
  'hasAll',
  'isEmpty',
  'isNotEmpty',
  'isNull',
  'isNotNull',
  'before',
  'after',
  'between',
  'withinLast',
  'notWithinLast',
] as const
export type Operator = (typeof operators)[number]

const fieldTypes = ['string', 'number', 'boolean', 'datetime', 'array', 'enum'] as const
type FieldType = (typeof fieldTypes)[number]

/** A field of devices that a condition can test. */
export type Field = {
  /** The name in a condition, case-sensitive. `custom.<key>` represents every custom field. */
  key: string
  label: string
  type: FieldType
  operators: readonly Operator[]
  /** The values of an enum. */
  values?: readonly string[]
  /** Other names of a value. */
  aliases?: Readonly<Record<string, string>>
}

const comparisons = ['greaterThan', 'greaterThanOrEquals', 'lessThan', 'lessThanOrEquals'] as const
const nulls = ['isNull', 'isNotNull'] as const

/** The operators of a type; a few fields have others. */
const operatorsOf: Readonly<Record<FieldType, readonly Operator[]>> = {
  string: [
    'equals',
    'notEquals',
    'contains',
    'notContains',
    'startsWith',
    'endsWith',
    'matches',
    'in',
    'notIn',
    ...nulls,
  ],
  number: ['equals', 'notEquals', ...comparisons, 'between', ...nulls],
  boolean: ['equals', 'notEquals', ...nulls],
  datetime: [
    'equals',
    'notEquals',
    'before',
    'after',
    ...comparisons,
    'between',
    'withinLast',
    'notWithinLast',
    ...nulls,
  ],
  array: ['hasAny', 'hasAll', 'isEmpty', 'isNotEmpty', 'contains'],
  enum: ['equals', 'notEquals', 'in', 'notIn'],
}

const field = (key: string, label: string, type: FieldType, more: Partial<Field> = {}): Field => ({
  key,
  label,
  type,
  operators: operatorsOf[type],
  ...more,
})
const isOneOf: Partial<Field> = { operators: ['equals', 'in'] }
const isOrNot: Partial<Field> = { operators: ['equals', 'notEquals'] }

export const customPrefix = 'custom.'
/** Valid keys after the prefix. */
const customKeyPattern = /^[a-z][a-z0-9_]*$/

/** Every field, in display order. */
export const fields: readonly Field[] = [
  field('hostname', 'Hostname', 'string'),
  field('displayName', 'Display name', 'string'),
  field('status', 'Status', 'enum', { values: deviceStatus.options }),
  field('osType', 'Operating system', 'enum', { values: osType.options }),
  field('osVersion', 'Operating system version', 'string'),
  field('osBuild', 'Operating system build', 'string'),
  field('architecture', 'Architecture', 'enum', {
    values: architecture.options,
    aliases: { amd64: 'x64', x86_64: 'x64', '386': 'x86', i386: 'x86', aarch64: 'arm64' },
  }),
  field('agentVersion', 'Agent version', 'string'),
  field('deviceRole', 'Role', 'enum', { values: deviceRole.options }),
  field('isHeadless', 'Has no screen', 'boolean'),
  field('lastUser', 'Last user', 'string'),
  field('lastSeenIp', 'Address it was last seen from', 'string'),
  field('uptimeSeconds', 'Uptime in seconds', 'number'),
  field('enrolledAt', 'Enrolled', 'datetime'),
  field('lastSeenAt', 'Last seen', 'datetime'),
  field('quarantinedAt', 'Quarantined', 'datetime'),
  field('daysSinceLastSeen', 'Days since last seen', 'number'),
  field('daysSinceEnrolled', 'Days since enrolled', 'number'),
  field('watchdogStatus', 'Watchdog', 'enum', {
    values: ['connected', 'failover', 'offline'],
    // A device without a watchdog has no watchdog status.
    operators: [...operatorsOf.enum, ...nulls],
  }),
  field('tags', 'Tags', 'array'),
  field('orgId', 'Organization', 'string', isOneOf),
  field('siteId', 'Site', 'string', isOneOf),
  field('groupId', 'Device group', 'string', isOneOf),
  field('hardware.manufacturer', 'Manufacturer', 'string'),
  field('hardware.model', 'Model', 'string'),
  field('hardware.serialNumber', 'Serial number', 'string'),
  field('hardware.cpuModel', 'Processor', 'string'),
  field('hardware.cpuCores', 'Processor cores', 'number'),
  field('hardware.gpuModel', 'Graphics', 'string'),
  field('hardware.ramTotalMb', 'Memory in MiB', 'number'),
  field('hardware.diskTotalGb', 'Disk space in GiB', 'number'),
  field('metrics.cpuPercent', 'Processor load in percent', 'number'),
  field('metrics.ramPercent', 'Memory in use in percent', 'number'),
  field('metrics.diskPercent', 'Disk space in use in percent', 'number'),
  field('network.ipAddress', 'Address of any interface', 'string'),
  field('network.publicIp', 'Public address of any interface', 'string'),
  field('network.macAddress', 'MAC address of any interface', 'string'),
  field('software.installed', 'Installed software', 'string', {
    operators: ['contains', 'notContains', 'equals', 'in', 'hasAny', 'hasAll'],
  }),
  field('software.notInstalled', 'Software that is not installed', 'string', {
    operators: ['contains', 'equals', 'in', 'hasAny'],
  }),
  field('patches.pending', 'Patches are pending', 'boolean', isOrNot),
  field('alerts.critical', 'Has an open critical alert', 'boolean', isOrNot),
  field('system.rebootRequired', 'Needs a reboot', 'boolean', isOrNot),
  field(`${customPrefix}<key>`, 'Custom field', 'string'),
]

const byKey = new Map(fields.map((one) => [one.key, one]))
const custom = byKey.get(`${customPrefix}<key>`)!

/** The field that a condition names, if it exists. */
export function findField(key: string): Field | undefined {
  if (!key.startsWith(customPrefix)) return byKey.get(key)
  return customKeyPattern.test(key.slice(customPrefix.length)) ? { ...custom, key } : undefined
}

/** A field in the reply of the API. */
export const FilterField = z
  .object({
    key: z.string().describe('The name in a condition; custom.<key> represents every custom field'),
    label: z.string(),
    type: z.enum(fieldTypes),
    operators: z.array(z.enum(operators)),
    values: z.array(z.string()).optional().describe('The values of an enum'),
  })
  .meta({ id: 'FilterField' })
export type FilterField = z.output<typeof FilterField>
