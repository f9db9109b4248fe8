import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { cursorPageOf, cursorPageQuery, pageOf, pageQuery } from '../core/page.ts'
import { idOf, idPrefix, instant, text, timezone } from '../core/schema.ts'
import { parseWeeklyTimes } from '../core/weekly-window.ts'

export const osType = z.enum(['windows', 'macos', 'linux'])
export const architecture = z.enum(['x64', 'x86', 'arm64'])
export const deviceRole = z.enum([
  'workstation',
  'server',
  'printer',
  'router',
  'switch',
  'firewall',
  'access_point',
  'phone',
  'iot',
  'camera',
  'nas',
  'unknown',
])
export const deviceStatus = z.enum([
  'online',
  'offline',
  'maintenance',
  'decommissioned',
  'quarantined',
  'updating',
  'pending',
])

const MaintenanceWindow = z.object({
  every: z.string().describe('Days and local time when it opens'),
  durationMinutes: z.int(),
  timezone: z.string(),
})

export const Device = z
  .object({
    id: idOf('device'),
    orgId: idOf('organization'),
    siteId: idOf('site').nullable(),
    agentId: z.string(),
    hostname: z.string(),
    displayName: z.string().nullable(),
    osType,
    osVersion: z.string(),
    osBuild: z.string().nullable(),
    architecture: z.string(),
    agentVersion: z.string(),
    status: deviceStatus,
    lastSeenAt: instant.nullable(),
    lastSeenIp: z.string().nullable(),
    enrolledAt: instant,
    tags: z.array(z.string()).describe('Sorted'),
    customFields: z.record(z.string(), z.string()),
    deviceRole,
    deviceRoleSource: z
      .enum(['auto', 'manual'])
      .describe('auto: reported by the agent; manual: set by a user'),
    isVirtual: z.boolean(),
    virtualizationPlatform: z.string().nullable(),
    isHeadless: z.boolean(),
    lastUser: z.string().nullable(),
    uptimeSeconds: z.number().nullable(),
    pendingReboot: z.boolean(),
    maintenanceUntil: instant.nullable().describe('null while in maintenance: until a user ends it'),
    maintenanceWindow: MaintenanceWindow.nullable().describe(
      'The part of each week in which updates of its agent begin; null: as its organization has set, or at any time',
    ),
    quarantinedAt: instant.nullable(),
    quarantinedReason: z.string().nullable(),
    watchdogStatus: z
      .enum(['connected', 'failover', 'offline'])
      .nullable()
      .describe('State of the watchdog of the agent; failover: it reports in place of a silent agent'),
    watchdogSeenAt: instant.nullable(),
    watchdogVersion: z.string().nullable(),
    mainSilentSince: instant
      .nullable()
      .describe('Since when the agent is silent, as reported by its watchdog'),
    autoUpdate: z
      .object({
        desired: z.boolean().describe('Whether users allow the agent to update itself'),
        acknowledged: z.boolean().nullable().describe('The same, as the agent last confirmed it'),
      })
      .describe('Whether the agent updates itself'),
    update: z
      .object({
        version: z.string(),
        state: z.enum(['updating', 'failed', 'refused', 'rolled_back']),
        since: instant,
        reason: z.string().nullable(),
      })
      .nullable()
      .describe('The agent update in progress, or the last one that failed'),
    possibleReplacementOf: idOf('device')
      .nullable()
      .describe(
        'An existing device of the same name and site when this one enrolled without proof of being it',
      ),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Device' })
export type Device = z.output<typeof Device>

const maybeText = z.string().nullable()
const maybeNumber = z.number().nullable()

export const Hardware = z
  .object({
    manufacturer: maybeText,
    model: maybeText,
    serialNumber: maybeText,
    cpuModel: maybeText,
    cpuCores: maybeNumber,
    cpuThreads: maybeNumber,
    ramTotalMb: maybeNumber.describe('MiB'),
    diskTotalGb: maybeNumber.describe('GiB'),
    gpuModel: maybeText,
    motherboardManufacturer: maybeText,
    motherboardModel: maybeText,
    biosVersion: maybeText,
  })
  .meta({ id: 'Hardware' })
export type Hardware = z.output<typeof Hardware>

export const NetworkInterface = z
  .object({
    interfaceName: z.string(),
    macAddress: maybeText,
    ipAddress: maybeText,
    ipType: maybeText.describe('ipv4 or ipv6'),
    isPrimary: z.boolean().describe('An address of the interface with the default route'),
    publicIp: maybeText,
  })
  .meta({ id: 'NetworkInterface' })
export type NetworkInterface = z.output<typeof NetworkInterface>

export const Disk = z
  .object({
    mountPoint: z.string(),
    device: maybeText,
    fsType: maybeText,
    totalGb: maybeNumber.describe('GiB'),
    usedGb: maybeNumber.describe('GiB'),
    freeGb: maybeNumber.describe('GiB'),
    usedPercent: maybeNumber,
    health: maybeText,
  })
  .meta({ id: 'Disk' })
export type Disk = z.output<typeof Disk>

export const Software = z
  .object({
    name: z.string(),
    version: maybeText,
    publisher: maybeText,
    installDate: maybeText,
    installLocation: maybeText,
  })
  .meta({ id: 'Software' })
export type Software = z.output<typeof Software>

export const Metrics = z
  .object({
    recordedAt: instant,
    cpuPercent: maybeNumber,
    ramPercent: maybeNumber,
    ramUsedMb: maybeNumber.describe('MiB'),
    diskPercent: maybeNumber,
    diskUsedGb: maybeNumber.describe('GiB'),
    processCount: maybeNumber,
  })
  .meta({ id: 'Metrics' })
export type Metrics = z.output<typeof Metrics>

const WindowedDevice = Device.extend({
  nextWindow: z
    .object({ opensAt: instant, closesAt: instant })
    .nullable()
    .describe('The occurrence of its maintenance window that is open, or else the next one'),
}).meta({ id: 'WindowedDevice' })

export const DeviceDetail = WindowedDevice.extend({
  hardware: Hardware.nullable(),
  network: z.array(NetworkInterface),
  disks: z.array(Disk),
  metrics: Metrics.nullable(),
}).meta({ id: 'DeviceDetail' })

/** A valid tag. */
export const tag = text(100, 1).regex(/^\S(.*\S)?$/s, 'must not begin or end with white space')

const tags = z.array(tag).max(100, 'must be at most 100 tags')

const customFields = z.record(
  text(100, 1).regex(/^[a-z][a-z0-9_]*$/, 'must be lower-case letters, digits and _, a letter first'),
  text(1000).nullable(),
)

export const DeviceChange = z
  .strictObject({
    displayName: text(255, 1).nullable().describe('Display name instead of the hostname'),
    siteId: idOf('site').nullable().describe('Site of the same organization to move to'),
    tags: tags.describe('Tags that replace all present ones').meta({ flag: 'tag' }),
    addTags: tags.describe('Tag to add').meta({ flag: 'add-tag' }),
    removeTags: tags.describe('Tag to remove').meta({ flag: 'remove-tag' }),
    customFields: customFields.describe('Custom fields to set; null removes one'),
    deviceRole: deviceRole.nullable().describe('Role; null lets the agent report it again'),
  })
  .partial()
export type DeviceChange = z.output<typeof DeviceChange>

export const TagChange = z.strictObject({
  deviceIds: z
    .array(idOf('device'))
    .min(1, 'must name a device')
    .max(1000, 'must be at most 1000 devices')
    .describe('Devices of one organization')
    .meta({ flag: 'device' }),
  add: tags.max(20, 'must be at most 20 tags').default([]).describe('Tag to add'),
  remove: tags.max(20, 'must be at most 20 tags').default([]).describe('Tag to remove'),
})
export type TagChange = z.output<typeof TagChange>

const maxWindowMinutes = 24 * 60

const NewWindow = z.strictObject({
  every: text(60, 1)
    .refine(
      (said) => parseWeeklyTimes(said) !== undefined,
      'must be days and a time, such as Sun 02:00, Mon-Fri 22:30, Sat,Sun 04:00 or daily 03:00',
    )
    .describe('Days and local time when it opens, such as Sun 02:00, Mon-Fri 22:30 or daily 03:00'),
  durationMinutes: z
    .int()
    .min(15, 'must be at least 15')
    .max(maxWindowMinutes, `must be at most ${maxWindowMinutes}`)
    .describe('How long it is open, at most a day'),
  timezone: timezone.optional().describe("IANA time zone; without a value that of the device's site, or UTC"),
})
export type NewWindow = z.output<typeof NewWindow>

export const Maintenance = z.strictObject({
  enable: z.boolean().optional().describe('true starts maintenance, false ends it'),
  durationHours: z
    .int()
    .min(1, 'must be at least 1')
    .max(168, 'must be at most 168')
    .optional()
    .describe('Hours until it ends automatically, 1 to 168; without a value it lasts until a user ends it')
    .meta({ flag: 'hours' }),
  window: NewWindow.nullable()
    .optional()
    .describe('Recurring window in which updates of its agent begin; null removes it'),
})
export type Maintenance = z.output<typeof Maintenance>

/** Format of agent ids. */
export const agentIdPattern = /^[0-9a-f]{64}$/

export const agentParams = z.strictObject({
  id: text(64, 1).regex(agentIdPattern, 'must be an agent id').meta({ resource: 'agent' }),
})

const section = 'Devices'
const reads = userAccess({ permission: 'devices:read', key: true })
const writes = userAccess({ permission: 'devices:write', key: true })
const deletes = userAccess({ permission: 'devices:delete', key: true })
const params = z.strictObject({ id: idOf('device') })

export const devices = {
  list: endpoint({
    method: 'GET',
    path: '/devices',
    summary: 'List devices by hostname',
    tag: section,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only devices of this organization'),
      siteId: idOf('site').optional().describe('Only devices of this site'),
      groupId: idOf('device_group').optional().describe('Only devices of this group'),
      status: deviceStatus.optional(),
      osType: osType.optional(),
      role: deviceRole.optional(),
      tag: text(100, 1).optional().describe('Only devices with this tag'),
      search: text(100).optional().describe('Part of the hostname or display name'),
      idPrefix,
      ...cursorPageQuery(),
    }),
    reply: cursorPageOf(Device),
    errors: ['org_access_denied'],
  }),
  show: endpoint({
    method: 'GET',
    path: '/devices/:id',
    summary: 'Show a device with its hardware, network, disks and latest metrics',
    tag: section,
    access: reads,
    params,
    reply: DeviceDetail,
  }),
  software: endpoint({
    method: 'GET',
    path: '/devices/:id/software',
    summary: 'List the software installed on a device, by name',
    tag: section,
    access: reads,
    params,
    query: z.strictObject({
      name: text(100).optional().describe('Part of the name'),
      ...pageQuery(),
    }),
    reply: pageOf(Software),
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/devices/:id',
    summary: 'Change the name, site, tags, custom fields or role of a device',
    tag: section,
    access: writes,
    params,
    body: DeviceChange,
    reply: Device,
    audit: { action: 'device.update', resource: 'device' },
    emits: ['device.updated'],
    errors: ['site_access_denied'],
    example: { displayName: 'Reception', addTags: ['front-desk'] },
  }),
  tag: endpoint({
    method: 'POST',
    path: '/devices/tags',
    idempotencyKey: 'honored',
    summary: 'Add tags to devices, or remove them',
    tag: section,
    access: writes,
    body: TagChange,
    reply: z.object({
      success: z.literal(true),
      devices: z.int().describe('Number of devices in the request'),
    }),
    audit: { action: 'device.tag', resource: 'device' },
    emits: ['device.updated'],
    example: { add: ['production'] },
  }),
  maintenance: endpoint({
    method: 'POST',
    path: '/devices/:id/maintenance',
    idempotencyKey: 'honored',
    summary: 'Start or end the maintenance of a device, or set its recurring maintenance window',
    tag: section,
    access: writes,
    params,
    body: Maintenance,
    reply: WindowedDevice,
    audit: { action: 'device.maintenance', resource: 'device' },
    emits: ['device.updated'],
    errors: ['conflict'],
    example: { enable: true, durationHours: 4 },
  }),
  decommission: endpoint({
    method: 'DELETE',
    path: '/devices/:id',
    summary: 'Decommission a device: its agent is refused, its record stays',
    tag: section,
    access: deletes,
    params,
    reply: Device,
    audit: { action: 'device.decommission', resource: 'device' },
    emits: ['device.decommissioned'],
    errors: ['already_decommissioned'],
  }),
  restore: endpoint({
    method: 'POST',
    path: '/devices/:id/restore',
    idempotencyKey: 'honored',
    summary: 'Restore a decommissioned device',
    tag: section,
    access: writes,
    params,
    reply: Device,
    audit: { action: 'device.restore', resource: 'device' },
    emits: ['device.updated'],
    errors: ['not_decommissioned', 'device_limit_reached'],
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/devices/:id/permanent',
    summary: 'Delete a decommissioned device permanently, with all its data',
    tag: section,
    access: deletes,
    params,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    audit: { action: 'device.delete', resource: 'device' },
    errors: ['not_decommissioned'],
  }),
}
