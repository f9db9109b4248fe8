import { fold } from '../../src/core/fold.ts'
import { newId } from '../../src/core/new-id.ts'
import { aggregatedTags } from '../../src/devices/changes.ts'
import type { Storage } from '../../src/storage/open.ts'
import type { Random } from './random.ts'

/** A device as seen by a filter: single-valued fields by key, and lists. */
export type Machine = {
  id: string
  values: Record<string, string | number | boolean | null>
  tags: string[]
  custom: Record<string, string>
  interfaces: { ipAddress: string | null; publicIp: string | null; macAddress: string | null }[]
  software: string[]
  groups: string[]
  alerts: { severity: string; status: string }[]
  pendingPatches: number | null
}

export type Places = { orgIds: string[]; siteIds: string[]; groupIds: string[] }

export const now = '2026-03-31T12:00:00.000Z'

/** Texts that are difficult for comparisons. */
export const texts: readonly string[] = [
  '',
  ' ',
  'a',
  'A',
  'abc',
  'ABC',
  'aBc',
  'cab',
  'b',
  '%',
  '_',
  'a_b',
  'a%b',
  'axb',
  '\\',
  'a\\b',
  "o'b",
  '"q"',
  'Straße',
  'STRASSE',
  'straße',
  'ß',
  'ẞ',
  'Σίσυφος',
  'ΣΊΣΥΦΟΣ',
  'σίσυφοσ',
  'İstanbul',
  'istanbul',
  'i̇stanbul',
  'I',
  'ı',
  'e\u0301',
  'é',
  'É',
  'cafe\u0301',
  'CAFÉ',
  '😀',
  '😀b',
  'x😀',
  'ﬁ',
  'fi',
  'Ⅷ',
  'VIII',
  'K',
  'k',
  'K',
  'web-01',
  'Web-02',
  'web-01.example.com',
  '10',
  '9',
  '1e3',
  'null',
  'true',
  '\n',
  'a\nb',
  '٣',
]
const words: Readonly<Record<string, readonly string[]>> = {
  status: ['online', 'offline', 'maintenance', 'updating'],
  osType: ['windows', 'macos', 'linux'],
  architecture: ['x64', 'x86', 'arm64'],
  deviceRole: ['workstation', 'server', 'nas', 'unknown'],
  watchdogStatus: ['connected', 'failover', 'offline'],
}
export const dates: readonly string[] = [
  '0000-01-01T00:00:00.000Z',
  '0001-01-01T00:00:00.000Z',
  '9999-12-31T23:59:59.999Z',
  '1969-12-31T23:59:59.999Z',
  '2026-03-31T12:00:00.000Z',
  '2026-03-31T11:59:59.999Z',
  '2026-03-31T12:00:00.001Z',
  '2026-03-31T11:00:00.000Z',
  '2026-03-30T12:00:00.000Z',
  '2026-03-24T12:00:00.000Z',
  '2026-02-28T12:00:00.000Z',
  '2026-02-28T11:59:59.999Z',
  '2025-02-28T12:00:00.000Z',
  '2024-02-29T12:00:00.000Z',
  '2024-02-29T00:00:00.000Z',
  '2026-04-30T12:00:00.000Z',
]
const wholes: readonly number[] = [0, 1, 2, 4, -1, 8, 100, 2147483647, -2147483648]
export const bigs: readonly number[] = [...wholes, 2 ** 40, 2 ** 53 - 1, -(2 ** 53 - 1)]
export const reals: readonly number[] = [
  0, 0.1, 0.2, 0.30000000000000004, 50, 99.9, 100, -1, 1e300, -1e300, 1e-300,
]

/** Single-valued fields: the column and its possible values. */
const columns: Readonly<
  Record<string, [column: string, from: readonly (string | number)[], nullable?: true]>
> = {
  hostname: ['hostname', texts],
  displayName: ['display_name', texts, true],
  agentVersion: ['agent_version', texts],
  lastUser: ['last_user', texts, true],
  status: ['status', words.status!],
  enrolledAt: ['enrolled_at', dates],
  lastSeenAt: ['last_seen_at', dates, true],
  quarantinedAt: ['quarantined_at', dates, true],
  deviceRole: ['device_role', words.deviceRole!],
  uptimeSeconds: ['uptime_seconds', wholes, true],
  watchdogStatus: ['watchdog_status', words.watchdogStatus!, true],
  lastSeenIp: ['last_seen_ip', texts, true],
  osType: ['os_type', words.osType!],
  osVersion: ['os_version', texts],
  osBuild: ['os_build', texts, true],
  architecture: ['architecture', words.architecture!],
  'hardware.manufacturer': ['manufacturer', texts, true],
  'hardware.model': ['model', texts, true],
  'hardware.serialNumber': ['serial_number', texts, true],
  'hardware.cpuModel': ['cpu_model', texts, true],
  'hardware.cpuCores': ['cpu_cores', wholes, true],
  'hardware.gpuModel': ['gpu_model', texts, true],
  'hardware.ramTotalMb': ['ram_total_mb', bigs, true],
  'hardware.diskTotalGb': ['disk_total_gb', reals, true],
  'metrics.cpuPercent': ['cpu_percent', reals, true],
  'metrics.ramPercent': ['ram_percent', reals, true],
  'metrics.diskPercent': ['disk_percent', reals, true],
}

export function randomFleet(random: Random, size: number, places: Places): Machine[] {
  const maybe = <T>(value: T): T | null => (random.chance(0.3) ? null : value)
  return Array.from({ length: size }, () => {
    const values = Object.fromEntries(
      Object.entries(columns).map(([key, [, from, nullable]]) => [
        key,
        nullable ? maybe(random.pick(from)) : random.pick(from),
      ]),
    )
    return {
      id: newId(),
      values: {
        ...values,
        orgId: random.pick(places.orgIds),
        siteId: maybe(random.pick(places.siteIds)),
        isHeadless: random.chance(0.5),
        'system.rebootRequired': random.chance(0.5),
      },
      tags: [...new Set(random.some(texts, 3))],
      custom: Object.fromEntries(random.some(['x', 'y', 'z_1'], 3).map((key) => [key, random.pick(texts)])),
      interfaces: Array.from({ length: random.below(3) }, () => ({
        ipAddress: maybe(random.pick(texts)),
        publicIp: maybe(random.pick(texts)),
        macAddress: maybe(random.pick(texts)),
      })),
      software: random.some(texts, 4),
      groups: [...new Set(random.some(places.groupIds, 2))],
      alerts: random
        .some(['active', 'acknowledged', 'resolved'], 2)
        .map((status) => ({ status, severity: random.pick(['critical', 'high']) })),
      pendingPatches: maybe(random.pick([0, 1, 7])),
    }
  })
}

const two = () => [newId(), newId()]

/** Two organizations with a site and a group each. */
export async function addPlaces(
  storage: Storage,
  places: Places = { orgIds: two(), siteIds: two(), groupIds: two() },
): Promise<Places> {
  const at = { created_at: now, updated_at: now }
  const partner = newId()
  const pairs = places.orgIds.map((id, i) => [id, places.siteIds[i]!, places.groupIds[i]!] as const)
  await storage.write(async (tx) => {
    const plain = { settings: '{}', sso_config: null, deleted_at: null, status: 'active' }
    const owner = { id: partner, name: 'p', slug: 'p', type: 'msp', plan: 'free', billing_email: null }
    const limits = { max_organizations: null, max_devices: null }
    await tx
      .insertInto('partners')
      .values({ ...owner, ...plain, ...limits, ...at })
      .execute()
    for (const [id, siteId, groupId] of pairs) {
      const ends = { contract_start: null, contract_end: null, billing_contact: null, max_devices: null }
      const org = { id, partner_id: partner, name: id, slug: id, type: 'customer' }
      await tx
        .insertInto('organizations')
        .values({ ...org, ...plain, ...ends, ...at })
        .execute()
      const site = { id: siteId, org_id: id, name: 's', address: null, timezone: 'UTC', contact: null }
      await tx
        .insertInto('sites')
        .values({ ...site, settings: '{}', ...at })
        .execute()
      const group = { id: groupId, org_id: id, site_id: null, name: 'g' }
      await tx
        .insertInto('device_groups')
        .values({ ...group, ...at })
        .execute()
    }
  })
  return places
}

/** Replaces all devices. */
export async function replaceFleet({ write }: Storage, fleet: readonly Machine[]): Promise<void> {
  await write(async (tx) => {
    await tx.deleteFrom('devices').execute()
    for (const one of fleet) {
      const { id, values } = one
      const row = Object.fromEntries(Object.entries(columns).map(([key, [column]]) => [column, values[key]]))
      const name = values.displayName as string | null
      await tx
        .insertInto('devices')
        .values({
          ...row,
          id,
          org_id: values.orgId as string,
          site_id: values.siteId as string | null,
          agent_id: id,
          token_hash: id,
          hostname_key: fold(values.hostname as string),
          display_name_key: name === null ? null : fold(name),
          is_virtual: 0,
          is_headless: values.isHeadless ? 1 : 0,
          pending_reboot: values['system.rebootRequired'] ? 1 : 0,
          pending_patches: one.pendingPatches,
          device_role_source: 'auto',
          created_at: now,
          updated_at: now,
        } as never)
        .execute()
      const rows = {
        device_tags: one.tags.map((tag) => ({ tag })),
        device_custom_fields: Object.entries(one.custom).map(([key, value]) => ({ key, value })),
        device_interfaces: one.interfaces.map((it, position) => ({
          position,
          interface_name: 'eth0',
          mac_address: it.macAddress,
          ip_address: it.ipAddress,
          public_ip: it.publicIp,
          is_primary: 0,
        })),
        device_software: one.software.map((title, position) => ({
          position,
          name: title,
          name_key: fold(title),
        })),
        device_group_devices: one.groups.map((group) => ({ group_id: group })),
        alerts: one.alerts.map((alert) => ({
          ...alert,
          id: newId(),
          org_id: values.orgId as string,
          title: 't',
          title_key: 't',
          triggered_at: now,
          created_at: now,
          updated_at: now,
        })),
      } as const
      for (const [table, some] of Object.entries(rows)) {
        if (some.length === 0) continue
        const owned = some.map((it) => ({ ...it, device_id: id }))
        await tx
          .insertInto(table as keyof typeof rows)
          .values(owned as never)
          .execute()
      }
      await tx.updateTable('devices').set({ tags: aggregatedTags }).where('id', '=', id).execute()
    }
  })
}
