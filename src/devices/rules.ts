import { invalid, Problem } from '../core/errors.ts'
import { fold } from '../core/fold.ts'
import { withoutUndefined } from '../core/json.ts'
import type { Scope } from '../core/scope.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Device, DeviceChange, Maintenance } from './contract.ts'
import { makeWindow } from './windows/rules.ts'

/** The folded copies of a device's names, written with the names. */
export function nameKeys(names: { hostname: string; displayName: string | null }) {
  const { hostname, displayName } = names
  return { hostname_key: fold(hostname), display_name_key: displayName === null ? null : fold(displayName) }
}

/** @throws device_limit_reached */
export function checkDeviceCap(maxDevices: number | null, currentDevices: number): void {
  if (maxDevices === null || currentDevices < maxDevices) return
  throw new Problem('device_limit_reached', undefined, { details: { currentDevices, maxDevices } })
}

export const maxPerDevice = { tags: 100, customFields: 100 }

/** The device after a change. @throws invalid_request */
export function applyChange(device: Device, change: DeviceChange, now: Instant): Device {
  if (Object.keys(change).length === 0) {
    throw invalid([{ path: 'body', message: 'must change something' }], 'No updates provided')
  }
  const { tags: _, addTags: __, removeTags: ___, customFields, deviceRole, ...others } = change
  return {
    ...device,
    ...withoutUndefined(others),
    ...(deviceRole === null && { deviceRoleSource: 'auto' as const }),
    ...(deviceRole != null && { deviceRole, deviceRoleSource: 'manual' as const }),
    tags: tagsAfter(device.tags, change),
    customFields: fieldsAfter(device.customFields, customFields),
    updatedAt: now,
  }
}

function tagsAfter(
  tags: string[],
  { tags: replaced, addTags = [], removeTags = [] }: DeviceChange,
): string[] {
  if (replaced !== undefined && addTags.length + removeTags.length > 0) {
    throw invalid([{ path: 'body.tags', message: 'replaces all tags: omit addTags and removeTags' }])
  }
  const off = new Set(removeTags)
  const kept = [...(replaced ?? tags), ...addTags].filter((tag) => !off.has(tag))
  const after = [...new Set(kept)].sort(byCodePoint)
  if (after.length > maxPerDevice.tags)
    throw tooManyTags(replaced === undefined ? 'body.addTags' : 'body.tags')
  return after
}

/** The order in which both databases sort text: by UTF-8 bytes. */
const byCodePoint = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b))

export const tooManyTags = (path: string): Problem =>
  invalid([{ path, message: `a device has at most ${maxPerDevice.tags} tags` }])

function fieldsAfter(
  fields: Device['customFields'],
  change: DeviceChange['customFields'] = {},
): Device['customFields'] {
  const merged = Object.entries({ ...fields, ...change })
  const after = merged.filter((entry): entry is [string, string] => entry[1] !== null)
  if (after.length > maxPerDevice.customFields) {
    throw invalid([
      {
        path: 'body.customFields',
        message: `a device has at most ${maxPerDevice.customFields} custom fields`,
      },
    ])
  }
  return Object.fromEntries(after)
}

/**
 * A device moves only within its organization; a caller restricted to sites moves it only between those. @throws
 * site_access_denied
 */
export function checkMayMove(device: Device, site: { orgId: string } | null, scope: Scope): void {
  if (site === null && scope.kind === 'organization' && scope.siteIds !== null) {
    throw new Problem('site_access_denied')
  }
  if (site === null || site.orgId === device.orgId) return
  throw invalid([{ path: 'body.siteId', message: "must be a site of the device's organization" }])
}

/** The fields that differ between two states of a device, for the audit log. */
export function difference(
  before: Device,
  after: Device,
): { before: Partial<Device>; after: Partial<Device> } {
  const keys = (Object.keys(after) as (keyof Device)[]).filter(
    (key) => key !== 'updatedAt' && JSON.stringify(before[key]) !== JSON.stringify(after[key]),
  )
  const of = (device: Device) => Object.fromEntries(keys.map((key) => [key, device[key]]))
  return { before: of(before), after: of(after) }
}

type MaintenanceSettings = { now: Instant; offlineAfterSeconds: number; siteZone: string }

/** @throws invalid_request, conflict for a decommissioned or quarantined device */
export function setMaintenance(
  device: Device,
  { enable, durationHours, window }: Maintenance,
  settings: MaintenanceSettings,
): Device {
  if (enable === undefined && window === undefined) {
    throw invalid([{ path: 'body.enable', message: 'is missing: start or end maintenance, or set a window' }])
  }
  if (enable !== true && durationHours !== undefined) {
    throw invalid([
      { path: 'body.durationHours', message: 'is the duration of a maintenance: omit it unless one starts' },
    ])
  }
  if (device.status === 'decommissioned' || device.status === 'quarantined') {
    throw new Problem('conflict', `Device is ${device.status}`)
  }
  const { now, siteZone } = settings
  const windowed =
    window === undefined
      ? device
      : { ...device, maintenanceWindow: window && makeWindow(window, siteZone), updatedAt: now }
  if (enable === undefined) return windowed
  return enable ? startMaintenance(windowed, durationHours, now) : endMaintenance(windowed, settings)
}

function startMaintenance(device: Device, durationHours: number | undefined, now: Instant): Device {
  const maintenanceUntil = durationHours === undefined ? null : addSeconds(now, durationHours * 3600)
  return { ...device, status: 'maintenance', maintenanceUntil, updatedAt: now }
}

function endMaintenance(device: Device, { now, offlineAfterSeconds }: MaintenanceSettings): Device {
  if (device.status !== 'maintenance') return device
  const isSeen = device.lastSeenAt !== null && device.lastSeenAt >= addSeconds(now, -offlineAfterSeconds)
  return { ...device, status: isSeen ? 'online' : 'offline', maintenanceUntil: null, updatedAt: now }
}

/** @throws already_decommissioned */
export function decommission(device: Device, now: Instant): Device {
  if (device.status === 'decommissioned') throw new Problem('already_decommissioned')
  return { ...device, status: 'decommissioned', maintenanceUntil: null, updatedAt: now }
}

/** @throws not_decommissioned */
export function checkDecommissioned(device: Device): void {
  if (device.status !== 'decommissioned') throw new Problem('not_decommissioned')
}

export function restore(device: Device, now: Instant): Device {
  checkDecommissioned(device)
  return { ...device, status: 'offline', updatedAt: now }
}
