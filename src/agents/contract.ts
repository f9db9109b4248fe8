import { z } from 'zod'
import { agentAccess, agentOrWatchdogAccess, endpoint, publicAccess } from '../core/endpoint.ts'
import { idOf, instant, reportedText, secret, text } from '../core/schema.ts'
import { agentParams, type architecture, type Device, deviceRole, osType } from '../devices/contract.ts'
import { PublicKey, ServiceKey } from './keys/contract.ts'
import { lenient, lenientList } from './lenient.ts'

const tag = 'Agents'
const short = reportedText(255)
const amount = z.number().min(0).max(1e15)

/** Maps amd64, x86_64 … to the three names of the product; any other value is stored unchanged. */
const anyArchitecture = text(50, 1).overwrite((name) => {
  const known: Record<string, z.output<typeof architecture>> = {
    amd64: 'x64',
    x86_64: 'x64',
    '386': 'x86',
    i386: 'x86',
    i686: 'x86',
    ia32: 'x86',
    aarch64: 'arm64',
  }
  return known[name.toLowerCase()] ?? name
})

const HardwareReport = lenient({
  manufacturer: short,
  model: short,
  serialNumber: short,
  cpuModel: short,
  cpuCores: z.int().min(0).max(100_000),
  cpuThreads: z.int().min(0).max(100_000),
  ramTotalMb: amount,
  diskTotalGb: amount,
  gpuModel: short,
  motherboardManufacturer: short,
  motherboardModel: short,
  biosVersion: short,
})
export type HardwareReport = z.output<typeof HardwareReport>

const InterfaceReport = lenient({
  interfaceName: reportedText(255, 1),
  name: reportedText(255, 1),
  macAddress: reportedText(64),
  mac: reportedText(64),
  ipAddress: reportedText(64),
  ip: reportedText(64),
  ipType: reportedText(10),
  isPrimary: z.boolean(),
  publicIp: reportedText(64),
})
export type InterfaceReport = z.output<typeof InterfaceReport>

const DiskReport = lenient({
  mountPoint: reportedText(1024, 1),
  device: short,
  fsType: reportedText(50),
  totalGb: amount,
  usedGb: amount,
  freeGb: amount,
  usedPercent: z.number().min(0).max(100),
  health: reportedText(50),
})
export type DiskReport = z.output<typeof DiskReport>

const SoftwareReport = lenient({
  name: reportedText(500, 1),
  version: reportedText(255),
  publisher: short,
  installDate: reportedText(50),
  installLocation: reportedText(1024),
})
export type SoftwareReport = z.output<typeof SoftwareReport>

const MetricsReport = lenient({
  cpuPercent: z.number().min(0).max(100),
  ramPercent: z.number().min(0).max(100),
  ramUsedMb: amount,
  diskPercent: z.number().min(0).max(100),
  diskUsedGb: amount,
  processCount: z.int().min(0).max(10_000_000),
})
export type MetricsReport = z.output<typeof MetricsReport>

export const Enrollment = z.strictObject({
  enrollmentKey: secret(text(255, 1)).describe('The key as displayed once at its creation'),
  hostname: text(255, 1),
  osType,
  osVersion: text(100, 1),
  architecture: anyArchitecture,
  agentVersion: text(50, 1),
  deviceRole: deviceRole.default('unknown'),
  isVirtual: z.boolean().default(false),
  virtualizationPlatform: text(100).nullable().default(null),
  hardwareInfo: HardwareReport.optional(),
  networkInfo: lenientList(InterfaceReport, 100).optional(),
  enrollmentSecret: secret(text(1024, 1))
    .optional()
    .describe(
      'Secret that the service requires in addition to a key, if configured; also as header X-Agent-Enrollment-Secret',
    ),
  // Of any shape: an unrelated bearer token is no proof, but no reason for a refusal either.
  reenrollmentToken: secret(text(8192, 1))
    .optional()
    .describe(
      'The previous bearer token of the machine, as proof that it is the device on record. Also as header X-Agent-Reenrollment-Token, or as bearer token',
    ),
  publicKey: PublicKey.optional().describe(
    'Ed25519 public key of the machine, by which it gets new tokens when its own is refused: 32 bytes in base64. Also as header X-Agent-Public-Key',
  ),
})
export type Enrollment = z.output<typeof Enrollment>

const TrustKey = z.object({
  keyId: z.string(),
  publicKeyB64: z.string().describe('The 32 bytes of an Ed25519 key'),
  validFrom: instant.nullable(),
})

const EnrollmentReply = z
  .object({
    agentId: z.string(),
    deviceId: idOf('device'),
    authToken: secret(z.string()).describe('Bearer token of the agent, displayed only once'),
    watchdogAuthToken: secret(z.string()).describe('Bearer token of its watchdog, displayed only once'),
    orgId: idOf('organization'),
    siteId: idOf('site').nullable(),
    config: z.object({
      heartbeatIntervalSeconds: z.int(),
      metricsCollectionIntervalSeconds: z.int(),
    }),
    manifestTrustKeys: z.array(TrustKey).describe('Keys that releases of the agent are signed with'),
    serviceKey: ServiceKey,
  })
  .meta({ id: 'Enrolled' })

export const Heartbeat = z.looseObject({
  status: z.enum(['ok', 'warning', 'error']),
  agentVersion: reportedText(50, 1),
  metrics: MetricsReport.optional().catch(undefined),
  ...lenient({
    hostname: reportedText(255, 1),
    osVersion: reportedText(100, 1),
    osBuild: reportedText(100),
    uptime: amount,
    lastUser: short,
    pendingReboot: z.boolean(),
    deviceRole,
    isVirtual: z.boolean(),
    virtualizationPlatform: reportedText(100),
    isHeadless: z.boolean(),
    autoUpdate: z.boolean(),
    role: z.enum(['agent', 'watchdog']),
    watchdogVersion: reportedText(50, 1),
    mainSilentSince: instant.nullable(),
  }).shape,
})
export type Heartbeat = z.output<typeof Heartbeat>

/** Fields of a heartbeat that the device has by the same name: they are stored when they differ. */
export const reportedFields = [
  'agentVersion',
  'hostname',
  'osVersion',
  'osBuild',
  'lastUser',
  'virtualizationPlatform',
  'isVirtual',
  'isHeadless',
  'pendingReboot',
] as const satisfies readonly (keyof Heartbeat & keyof Device)[]

export const Inventory = z.looseObject({
  hardware: HardwareReport.optional().catch(undefined),
  network: lenientList(InterfaceReport, 100).optional(),
  disks: lenientList(DiskReport, 200).optional(),
  software: lenientList(SoftwareReport, 10_000).optional(),
})
export type Inventory = z.output<typeof Inventory>

/** A command as an agent receives it. */
export const AgentCommand = z.object({
  id: z.guid(),
  type: z.string(),
  payload: z.record(z.string(), z.unknown()),
})
export type AgentCommand = z.output<typeof AgentCommand>

export const HeartbeatReply = z.object({
  commands: z.array(AgentCommand).describe('The oldest pending ones, at most 10'),
  configUpdate: z
    .object({ heartbeatIntervalSeconds: z.int().optional(), autoUpdate: z.boolean().optional() })
    .nullable(),
  upgradeTo: z.string().nullable().describe('The version to update to, without a leading v'),
  rollback: z
    .literal(true)
    .optional()
    .describe('The version is older than the running one, and users decided to return to it'),
  rotateToken: z.boolean().describe('The token is old: rotate it'),
  confirmTokenRotation: z.literal(true).optional().describe('The new token is in use and not confirmed yet'),
  manifestTrustKeys: z.array(TrustKey).describe('Keys that releases are signed with'),
})
export type HeartbeatReply = z.input<typeof HeartbeatReply>

export const agents = {
  enroll: endpoint({
    method: 'POST',
    path: '/agents/enroll',
    idempotencyKey: 'honored',
    summary: 'Enroll a machine with an enrollment key',
    tag,
    access: publicAccess,
    body: Enrollment,
    headers: {
      'x-agent-enrollment-secret': 'enrollmentSecret',
      'x-agent-reenrollment-token': 'reenrollmentToken',
      authorization: 'reenrollmentToken',
      'x-agent-public-key': 'publicKey',
    },
    status: 201,
    reply: EnrollmentReply,
    audit: { action: 'device.create', resource: 'device' },
    quota: 'DEVICES',
    emits: ['device.enrolled', 'alert.triggered'],
    limit: 'ENROLL_IP',
    errors: [
      'enrollment_key_not_found',
      'enrollment_key_expired',
      'enrollment_key_exhausted',
      'enrollment_secret_required',
      'invalid_enrollment_secret',
      'tenant_inactive',
      'device_limit_reached',
      'device_quarantined',
    ],
    example: {
      enrollmentKey: '<the key, 64 hex characters>',
      hostname: 'reception-1',
      osType: 'linux',
      osVersion: 'Debian 12',
      architecture: 'x64',
      agentVersion: '0.1.0',
    },
  }),
  heartbeat: endpoint({
    method: 'POST',
    path: '/agents/:id/heartbeat',
    idempotencyKey: { refused: 'repeatable' },
    summary: 'Report that the machine is alive, with its latest metrics',
    tag,
    access: agentOrWatchdogAccess,
    params: agentParams,
    body: Heartbeat,
    reply: HeartbeatReply,
    errors: ['re_enrollment_required'],
    audit: { unaudited: 'telemetry' },
    emits: ['device.online', 'device.updated'],
    maxBody: 5 * 1024 * 1024,
    example: { status: 'ok', agentVersion: '0.1.0' },
  }),
  config: endpoint({
    method: 'GET',
    path: '/agents/:id/config',
    summary: 'Fetch the configuration: how often to report, and what',
    tag,
    access: agentOrWatchdogAccess,
    params: agentParams,
    reply: z.object({
      heartbeatIntervalSeconds: z.int(),
      metricsCollectionIntervalSeconds: z.int(),
      enabledCollectors: z.array(z.string()),
      autoUpdate: z.boolean().describe('Whether it may update itself'),
    }),
  }),
  inventory: endpoint({
    method: 'PUT',
    path: '/agents/:id/inventory',
    summary: 'Report hardware, network, disks and software; each part given replaces what was there',
    tag,
    access: agentAccess,
    params: agentParams,
    body: Inventory,
    reply: z.object({ success: z.literal(true) }),
    audit: { unaudited: 'telemetry' },
    maxBody: 5 * 1024 * 1024,
    example: { hardware: { cpuModel: 'Example 9', cpuCores: 8 } },
  }),
}
