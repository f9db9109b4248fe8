import { hash } from 'node:crypto'
import { Problem } from '../core/errors.ts'
import { fold } from '../core/fold.ts'
import { randomBytes } from '../core/random.ts'
import { type Instant, later } from '../core/time.ts'
import type { Device } from '../devices/contract.ts'
import type { AgentDeviceRow, DeviceRow } from '../storage/tables.ts'
import type { Enrollment, Heartbeat } from './contract.ts'

/** What a heartbeat ends: someone decided on the other states. */
export const silentStates = ['offline', 'updating', 'pending'] as const

export const agentConfig = { heartbeatIntervalSeconds: 60, metricsCollectionIntervalSeconds: 30 }

/** 64 hex characters; also the address of the agent's routes. */
export const newAgentId = (): string => randomBytes(32).toString('hex')

/** `svc_` and 64 hex characters; only its SHA-256 is kept. */
export const newAgentToken = (): string => `svc_${randomBytes(32).toString('hex')}`

export const agentTokenHash = (token: string): string => hash('sha256', token, 'hex')

type Tenant = {
  org: { status: string; deleted_at: string | null; max_devices: number | null }
  partner: { status: string; deleted_at: string | null; max_devices: number | null }
}

/** @throws tenant_inactive unless the organization and its partner are in use */
export function checkEnrollable({ org, partner }: Tenant): void {
  const open = org.deleted_at === null && (org.status === 'active' || org.status === 'trial')
  if (open && partner.deleted_at === null && partner.status === 'active') return
  throw new Problem('tenant_inactive', 'Enrollment tenant is not active')
}

export function makeDevice(
  body: Enrollment,
  made: { id: string; agentId: string; orgId: string; siteId: string | null; ip: string; now: Instant },
): Device {
  return {
    id: made.id,
    orgId: made.orgId,
    siteId: made.siteId,
    agentId: made.agentId,
    hostname: body.hostname,
    displayName: null,
    osType: body.osType,
    osVersion: body.osVersion,
    osBuild: null,
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
    lastUser: null,
    uptimeSeconds: null,
    pendingReboot: false,
    maintenanceUntil: null,
    quarantinedAt: null,
    quarantinedReason: null,
    watchdogStatus: null,
    createdAt: made.now,
    updatedAt: made.now,
  }
}

/** The columns a heartbeat changes: what it carries and what differs. A role that somebody set stays. */
export function changesOf(body: Heartbeat, device: AgentDeviceRow): Partial<DeviceRow> {
  const isAuto = device.device_role_source === 'auto'
  const said: Partial<AgentDeviceRow> = {
    agent_version: body.agentVersion,
    ...(body.hostname !== undefined && { hostname: body.hostname }),
    ...(body.osVersion !== undefined && { os_version: body.osVersion }),
    ...(body.osBuild !== undefined && { os_build: body.osBuild }),
    ...(body.lastUser !== undefined && { last_user: body.lastUser }),
    ...(body.deviceRole !== undefined && isAuto && { device_role: body.deviceRole }),
    ...(body.virtualizationPlatform !== undefined && {
      virtualization_platform: body.virtualizationPlatform,
    }),
    ...(body.isVirtual !== undefined && { is_virtual: body.isVirtual ? 1 : 0 }),
    ...(body.isHeadless !== undefined && { is_headless: body.isHeadless ? 1 : 0 }),
    ...(body.pendingReboot !== undefined && { pending_reboot: body.pendingReboot ? 1 : 0 }),
  }
  const changed: Partial<DeviceRow> = Object.fromEntries(
    Object.entries(said).filter(([column, value]) => value !== device[column as keyof AgentDeviceRow]),
  )
  return changed.hostname === undefined ? changed : { ...changed, hostname_key: fold(changed.hostname) }
}

const quietSeconds = 86_400
const mostAddresses = 100

/**
 * What is remembered once this address was told, or undefined when it was within the last day: a machine between
 * two networks tells each of them once.
 */
export function toldWith(told: string | null, ip: string, now: Instant): string | undefined {
  const before = JSON.parse(told ?? '{}') as Record<string, Instant>
  const recent = Object.entries(before).filter(([, at]) => at > later(now, -quietSeconds))
  if (recent.some(([address]) => address === ip)) return undefined
  return JSON.stringify(Object.fromEntries([...recent.slice(1 - mostAddresses), [ip, now]]))
}

/** What a machine says of itself when it enrolls again; what people made of its record stays. */
export function reenrolled(device: Device, made: Device): Device {
  const { id, orgId, siteId, displayName, tags, customFields, createdAt } = device
  const kept = { id, orgId, siteId, displayName, tags, customFields, createdAt }
  const { status, maintenanceUntil, deviceRole, deviceRoleSource } = device
  return {
    ...made,
    ...kept,
    ...(status === 'maintenance' && { status, maintenanceUntil }),
    ...(deviceRoleSource === 'manual' && { deviceRole, deviceRoleSource }),
  }
}
