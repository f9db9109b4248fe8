import { hash } from 'node:crypto'
import { Problem } from '../core/errors.ts'
import { fold } from '../core/fold.ts'
import { randomBytes } from '../core/random.ts'
import type { Instant } from '../core/time.ts'
import type { Device } from '../devices/contract.ts'
import type { DeviceRow } from '../storage/tables.ts'
import type { Enrollment, Heartbeat } from './contract.ts'

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

/** @throws device_limit_reached */
export function checkDeviceCap(maxDevices: number | null, currentDevices: number): void {
  if (maxDevices === null || currentDevices < maxDevices) return
  throw new Problem('device_limit_reached', undefined, { details: { currentDevices, maxDevices } })
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
    deviceRole: body.deviceRole,
    isVirtual: body.isVirtual,
    virtualizationPlatform: body.virtualizationPlatform,
    isHeadless: false,
    lastUser: null,
    uptimeSeconds: null,
    pendingReboot: false,
    createdAt: made.now,
    updatedAt: made.now,
  }
}

/** States that a heartbeat does not end: someone decided on them. */
const kept = new Set(['maintenance', 'decommissioned', 'quarantined'])

export const statusAfterHeartbeat = (status: string): string => (kept.has(status) ? status : 'online')

/** The columns a heartbeat changes: what it carries and what differs. */
export function changesOf(body: Heartbeat, device: DeviceRow): Partial<DeviceRow> {
  const said: Partial<DeviceRow> = {
    agent_version: body.agentVersion,
    ...(body.hostname !== undefined && { hostname: body.hostname, hostname_key: fold(body.hostname) }),
    ...(body.osVersion !== undefined && { os_version: body.osVersion }),
    ...(body.osBuild !== undefined && { os_build: body.osBuild }),
    ...(body.lastUser !== undefined && { last_user: body.lastUser }),
    ...(body.deviceRole !== undefined && { device_role: body.deviceRole }),
    ...(body.virtualizationPlatform !== undefined && {
      virtualization_platform: body.virtualizationPlatform,
    }),
    ...(body.isVirtual !== undefined && { is_virtual: body.isVirtual ? 1 : 0 }),
    ...(body.isHeadless !== undefined && { is_headless: body.isHeadless ? 1 : 0 }),
    ...(body.pendingReboot !== undefined && { pending_reboot: body.pendingReboot ? 1 : 0 }),
  }
  return Object.fromEntries(
    Object.entries(said).filter(([column, value]) => value !== device[column as keyof DeviceRow]),
  )
}
