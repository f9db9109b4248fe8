import { hash, timingSafeEqual } from 'node:crypto'
import { Problem } from '../core/errors.ts'
import { fold } from '../core/fold.ts'
import { randomBytes } from '../core/random.ts'
import { safeParse } from '../core/schema.ts'
import { columnsOf } from '../core/snake-case.ts'
import { truncateStorable } from '../core/text.ts'
import { addSeconds, type Instant, secondsBetween } from '../core/time.ts'
import { Device, DeviceChange } from '../devices/contract.ts'
import type { DeviceAgentColumns } from '../storage/schema/agent-tables.ts'
import type { AgentDeviceRow, DeviceRow } from '../storage/schema/tables.ts'
import { isUsable, type TenantColumns } from '../tenancy/rules.ts'
import { type Enrollment, type Heartbeat, type HeartbeatReply, reportedFields } from './contract.ts'

/**
 * Statuses that a heartbeat ends: other statuses are set by users, and an update ends when its version is reported.
 */
export const statusesEndedByHeartbeat = ['offline', 'pending'] as const

export const isSilent = (status: string): boolean =>
  (statusesEndedByHeartbeat as readonly string[]).includes(status)

export const agentConfig = { heartbeatIntervalSeconds: 60, metricsCollectionIntervalSeconds: 30 }

/** What an agent collects. */
export const collectors = ['hardware', 'software', 'metrics', 'network'] as const

/** 64 hex characters; also part of the agent's routes. */
export const newAgentId = (): string => randomBytes(32).toString('hex')

type Tenant = {
  org: { status: string; deleted_at: string | null; max_devices: number | null }
  partner: { status: string; deleted_at: string | null; max_devices: number | null }
}

/** @throws tenant_inactive unless the organization and its partner are in use */
export function checkEnrollable({ org, partner }: Tenant): void {
  if (isUsable(org.status, org.deleted_at) && isUsable(partner.status, partner.deleted_at)) return
  throw new Problem('tenant_inactive', 'Enrollment tenant is not active')
}

/** @throws enrollment_secret_required, invalid_enrollment_secret */
export function checkEnrollmentSecret(
  said: string | undefined,
  secret: string | undefined,
  orgId: string | null,
): void {
  if (secret === undefined) return
  // Hashes have equal length: the time of the comparison reveals nothing about the secret.
  const digest = (text: string) => hash('sha256', text, 'buffer')
  if (said !== undefined && timingSafeEqual(digest(said), digest(secret))) return
  const code = said === undefined ? 'enrollment_secret_required' : 'invalid_enrollment_secret'
  throw new Problem(code, undefined, { refusal: { orgId } })
}

type Nullable = { [Name in keyof Device]: null extends Device[Name] ? Name : never }[keyof Device]

/** Every field that may be null: nobody has reported it of a new device. */
const notYetKnown = Object.fromEntries(
  Object.entries(Device.shape).flatMap(([name, schema]) =>
    safeParse(schema, null).success ? [[name, null]] : [],
  ),
) as Record<Nullable, null>

export function makeDevice(
  body: Enrollment,
  made: {
    id: string
    agentId: string
    orgId: string
    siteId: string | null
    possibleReplacementOf: string | null
    ip: string
    now: Instant
  },
): Device {
  return {
    ...notYetKnown,
    id: made.id,
    orgId: made.orgId,
    siteId: made.siteId,
    agentId: made.agentId,
    hostname: body.hostname,
    osType: body.osType,
    osVersion: body.osVersion,
    architecture: body.architecture,
    agentVersion: body.agentVersion,
    status: 'online',
    lastSeenAt: made.now,
    lastSeenIp: made.ip,
    enrolledAt: made.now,
    tags: [],
    customFields: {},
    deviceRole: body.deviceRole,
    deviceRoleSource: 'auto',
    isVirtual: body.isVirtual,
    virtualizationPlatform: body.virtualizationPlatform,
    isHeadless: false,
    pendingReboot: false,
    autoUpdate: { desired: true, acknowledged: null },
    possibleReplacementOf: made.possibleReplacementOf,
    createdAt: made.now,
    updatedAt: made.now,
  }
}

/** Changed columns of a device. */
export type ColumnChanges = Partial<DeviceRow & DeviceAgentColumns & { auto_update: number }>

const reportedColumns: readonly (keyof AgentDeviceRow & keyof ColumnChanges)[] = columnsOf(reportedFields)

/** The columns that a heartbeat changes: reported and different. A role that a user set stays. */
export function heartbeatChanges(body: Heartbeat, device: AgentDeviceRow): ColumnChanges {
  const changed: ColumnChanges = {}
  const report = <C extends keyof AgentDeviceRow & keyof ColumnChanges>(
    column: C,
    said: AgentDeviceRow[C] | boolean | undefined,
  ): void => {
    const value = typeof said === 'boolean' ? Number(said) : said
    if (value !== undefined && value !== device[column]) Object.assign(changed, { [column]: value })
  }
  for (let i = 0; i < reportedFields.length; i++) report(reportedColumns[i]!, body[reportedFields[i]!])
  if (device.device_role_source === 'auto') report('device_role', body.deviceRole)
  report('auto_update_acknowledged', body.autoUpdate)
  // The agent reports, so it is not silent, whatever its watchdog last reported.
  report('main_silent_since', null)
  if (device.watchdog_status === 'failover') report('watchdog_status', 'connected')
  if (changed.hostname !== undefined) changed.hostname_key = fold(changed.hostname)
  return changed
}

export function isEmpty(changes: ColumnChanges): boolean {
  for (const _ in changes) return false
  return true
}

function differingColumns(said: Partial<AgentDeviceRow>, device: AgentDeviceRow): ColumnChanges {
  const changed = Object.entries(said).filter(
    ([column, value]) => value !== device[column as keyof AgentDeviceRow],
  )
  return Object.fromEntries(changed)
}

/** The columns that a heartbeat of the watchdog changes. */
export function watchdogChanges(body: Heartbeat, device: AgentDeviceRow): ColumnChanges {
  const { watchdogVersion: version, mainSilentSince: since = null } = body
  const said: Partial<AgentDeviceRow> = {
    watchdog_status: since === null ? 'connected' : 'failover',
    main_silent_since: since,
    ...(version !== undefined && { watchdog_version: version }),
  }
  return differingColumns(said, device)
}

/** The settings that an agent has to change; null when they are as desired, or when it reports none. */
export function configUpdateFor(
  { auto_update }: AgentDeviceRow,
  { autoUpdate }: Heartbeat,
): HeartbeatReply['configUpdate'] {
  const desired = auto_update === 1
  return autoUpdate === undefined || autoUpdate === desired ? null : { autoUpdate: desired }
}

/** Whether an agent should rotate its token. */
export function isTokenOld(
  { token_issued_at, enrolled_at }: Pick<AgentDeviceRow, 'token_issued_at' | 'enrolled_at'>,
  days: number,
  now: Instant,
): boolean {
  return secondsBetween(token_issued_at ?? enrolled_at, now) > days * 86_400
}

type TenantStatus = Pick<AgentDeviceRow, 'org_status' | 'partner_status'>

/** Whether the agents of a tenant may only report. Those of a deleted one are refused (`isTenantGone`). */
export const isSuspended = ({ org_status, partner_status }: TenantStatus): boolean =>
  !isUsable(org_status) || !isUsable(partner_status)

/** Whether the agents of a tenant are refused. */
export const isTenantGone = (row: TenantColumns): boolean =>
  row.org_deleted_at !== null ||
  row.partner_deleted_at !== null ||
  row.org_status === 'churned' ||
  row.partner_status === 'churned'

const addressMemorySeconds = 86_400
const maxAddresses = 100

/**
 * The addresses to store after this one was audited, or undefined when it was audited within the last day or the
 * limit is reached: a machine that alternates between two networks causes one entry each per day, and one that always
 * changes at most `maxAddresses`.
 */
export function rememberAddress(addresses: string | null, ip: string, now: Instant): string | undefined {
  const before = JSON.parse(addresses ?? '{}') as Record<string, Instant>
  const recent = Object.entries(before).filter(([, at]) => at > addSeconds(now, -addressMemorySeconds))
  if (recent.length >= maxAddresses || recent.some(([address]) => address === ip)) return undefined
  return JSON.stringify(Object.fromEntries([...recent, [ip, now]]))
}

/** What users set with PATCH, but for the role: where they have not set it, it is reported. */
const keptFields = (Object.keys(DeviceChange.shape) as (keyof DeviceChange)[]).filter(
  (field): field is keyof DeviceChange & keyof Device =>
    field !== 'deviceRole' && Object.hasOwn(Device.shape, field),
)

/** The device after it enrolled again: data reported by the machine is replaced, data set by users stays. */
export function reenrollDevice(device: Device, made: Device): Device {
  const { id, orgId, possibleReplacementOf, createdAt } = device
  const autoUpdate = { ...made.autoUpdate, desired: device.autoUpdate.desired }
  const setByUsers = Object.fromEntries(keptFields.map((field) => [field, device[field]]))
  const { status, maintenanceUntil, maintenanceWindow, deviceRole, deviceRoleSource } = device
  return {
    ...made,
    ...setByUsers,
    id,
    orgId,
    possibleReplacementOf,
    createdAt,
    autoUpdate,
    maintenanceWindow,
    ...(status === 'maintenance' && { status, maintenanceUntil }),
    ...(deviceRoleSource === 'manual' && { deviceRole, deviceRoleSource }),
  }
}

/** The alert when a machine enrolls with the name and site of another device without proof of being it. */
export function replacementAlert({ id, orgId, hostname, possibleReplacementOf }: Device) {
  return {
    orgId,
    deviceId: id,
    ruleId: 'possible-replacement',
    severity: 'medium' as const,
    title: truncateStorable(`${hostname} enrolled beside a device of the same name`, 500),
    message:
      'It may be the same machine after it was set up again, or another one that goes by its name. ' +
      'Decommission the device that is not in use any more.',
    context: { possibleReplacementOf },
  }
}
