import { z } from 'zod'
import { endpoint, user } from '../core/endpoint.ts'
import { pageOf, pageQuery } from '../core/page.ts'
import { idOf, instant, text } from '../core/schema.ts'

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
    deviceRole,
    isVirtual: z.boolean(),
    virtualizationPlatform: z.string().nullable(),
    isHeadless: z.boolean(),
    lastUser: z.string().nullable(),
    uptimeSeconds: z.number().nullable(),
    pendingReboot: z.boolean(),
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

export const DeviceDetail = Device.extend({
  hardware: Hardware.nullable(),
  network: z.array(NetworkInterface),
  disks: z.array(Disk),
  metrics: Metrics.nullable(),
}).meta({ id: 'DeviceDetail' })

const tag = 'Devices'

export const devices = {
  list: endpoint({
    method: 'GET',
    path: '/devices',
    summary: 'List devices by hostname',
    tag,
    access: user({ permission: 'devices:read', key: true }),
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only devices of this organization'),
      siteId: idOf('site').optional().describe('Only devices of this site'),
      status: deviceStatus.optional(),
      osType: osType.optional(),
      search: text(100).optional().describe('Part of the hostname or display name'),
      ...pageQuery(),
    }),
    reply: pageOf(Device),
    errors: ['org_access_denied'],
  }),
  show: endpoint({
    method: 'GET',
    path: '/devices/:id',
    summary: 'Show a device with its hardware, network, disks and latest metrics',
    tag,
    access: user({ permission: 'devices:read', key: true }),
    params: z.strictObject({ id: idOf('device') }),
    reply: DeviceDetail,
  }),
}
