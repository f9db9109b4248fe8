import type { Insertable } from 'kysely'
import { migrations } from '../../migrations/index.ts'
import { fold } from '../../src/core/fold.ts'
import { newId } from '../../src/core/new-id.ts'
import { aggregatedTags } from '../../src/devices/changes.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { seedRoles } from '../../src/identity/seeds.ts'
import { insertUser } from '../../src/identity/store.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { type Db, openStorage, type Storage } from '../../src/storage/open.ts'
import type { AlertRow, DeviceRow, ScriptRow } from '../../src/storage/schema/tables.ts'
import { addUser, claimsOf, type Place, role, signed } from './world.ts'

/** Partners with as many organizations each; every organization has the same number of devices. */
const partnerCount = 10
const orgsEach = 20
const batch = 500

export type Fleet = {
  devices: number
  /** The first organization, and all of them: those of the first partner come first. */
  orgId: string
  orgIds: readonly string[]
  partnerId: string
  /** Access tokens of the system, of a partner with a tenth of the fleet, and of one organization of it. */
  tokens: Tokens
  /** New ones of the same sessions. */
  newTokens(): Promise<Tokens>
}
type Tokens = { system: string; partner: string; organization: string }

/** From now on, so that nobody is found silent. */
const begin = Date.now()
const at = (seconds: number): string => new Date(begin + seconds * 1000).toISOString()
const stamps = { created_at: at(0), updated_at: at(0) }

/** Numbers that look random and are the same in every run. */
function numbers(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

const pick = <T>(list: readonly T[], n: number): T => list[Math.floor(n * list.length)]!

const kinds = ['desk', 'laptop', 'srv', 'web', 'sql', 'print', 'kiosk', 'desk'] as const
const cities = ['paris', 'lyon', 'berlin', 'wien', 'oslo', 'porto', 'gdansk', 'malmö'] as const
const tags = ['prod', 'test', 'vip', 'finance', 'warehouse', 'reception', 'lab', 'branch'] as const
const models = ['OptiPlex 7010', 'ThinkPad T14', 'PowerEdge R740', 'ProLiant DL380'] as const

/** Fills an empty database with organizations, devices and what belongs to them. */
export async function buildFleet(place: Place, devices: number, say: (line: string) => void): Promise<Fleet> {
  const storage = await openStorage(place)
  try {
    await migrate(storage, migrations)
    const tenants = await storage.write(addTenants)
    await addDevices(storage, tenants.orgIds, devices, say)
    const now = new Date().toISOString()
    return await storage.write(async (tx): Promise<Fleet> => {
      const orgId = tenants.orgIds[0]!
      const partnerId = tenants.partnerIds[0]!
      const admin = newId()
      await insertUser(
        tx,
        { id: admin, email: 'system@example.com', name: 'System', passwordHash: null },
        now,
      )
      await tx
        .updateTable('users')
        .set({ mfa_method: 'totp', is_system: 1 })
        .where('id', '=', admin)
        .execute()
      const partner = await addUser(tx, 'partner', now)
      await joinPartner(tx, { partnerId, userId: partner, roleId: role('Partner Admin'), orgs: 'all' }, now)
      const member = await addUser(tx, 'organization', now)
      await joinOrganization(tx, { orgId, userId: member, roleId: role('Org Admin'), siteIds: null }, now)
      const claims = {
        system: await claimsOf(tx, admin, { kind: 'system' }, now),
        partner: await claimsOf(tx, partner, { kind: 'partner', partnerId }, now),
        organization: await claimsOf(tx, member, { kind: 'organization', orgId }, now),
      }
      const newTokens = async () => ({
        system: await signed(claims.system),
        partner: await signed(claims.partner),
        organization: await signed(claims.organization),
      })
      return {
        devices,
        orgId,
        orgIds: tenants.orgIds,
        partnerId,
        tokens: await newTokens(),
        newTokens,
      }
    })
  } finally {
    await storage.close()
  }
}

async function addTenants(tx: Db): Promise<{ partnerIds: string[]; orgIds: string[] }> {
  await seedRoles(tx, at(0))
  const partnerIds: string[] = []
  const orgIds: string[] = []
  for (let p = 0; p < partnerCount; p++) {
    const id = newId()
    partnerIds.push(id)
    const free = { max_organizations: null, max_devices: null, sso_config: null, billing_email: null }
    const kind = { type: 'msp', plan: 'pro', status: 'active', settings: '{}', deleted_at: null }
    await tx
      .insertInto('partners')
      .values({ id, name: `Partner ${p}`, slug: `partner-${p}`, ...kind, ...free, ...stamps })
      .execute()
    for (let o = 0; o < orgsEach; o++) {
      const orgId = newId()
      orgIds.push(orgId)
      const org = { partner_id: id, name: `Organization ${p}-${o}`, slug: `organization-${p}-${o}` }
      const open = { max_devices: null, sso_config: null, contract_start: null, contract_end: null }
      await tx
        .insertInto('organizations')
        .values({
          id: orgId,
          ...org,
          ...open,
          type: 'customer',
          status: 'active',
          settings: '{}',
          billing_contact: null,
          deleted_at: null,
          ...stamps,
        })
        .execute()
    }
  }
  return { partnerIds, orgIds }
}

async function addDevices(
  storage: Storage,
  orgIds: readonly string[],
  devices: number,
  say: (line: string) => void,
): Promise<void> {
  const random = numbers(7)
  await storage.write((tx) => addScripts(tx, orgIds))
  for (let from = 0; from < devices; from += batch) {
    if (from % 100_000 === 0 && from > 0) say(`fleet: ${from} of ${devices} devices`)
    const rows = Array.from({ length: Math.min(batch, devices - from) }, (_, n) =>
      deviceRow(orgIds[(from + n) % orgIds.length]!, from + n, random),
    )
    await storage.write(async (tx) => {
      await inParts(rows, 50, (part) => tx.insertInto('devices').values(part).execute())
      const tagged = rows.flatMap((row, n) => tagsOf(row.id, from + n, random))
      await inParts(tagged, 500, (part) => tx.insertInto('device_tags').values(part).execute())
      const ids = rows.map(({ id }) => id)
      await tx.updateTable('devices').set({ tags: aggregatedTags }).where('id', 'in', ids).execute()
      const software = rows.flatMap(({ id }) => softwareOf(id, random))
      await inParts(software, 500, (part) => tx.insertInto('device_software').values(part).execute())
      const alerts = rows.filter((_, n) => (from + n) % 20 === 0).map((row) => alertRow(row, random))
      await inParts(alerts, 200, (part) => tx.insertInto('alerts').values(part).execute())
    })
  }
}

async function inParts<T>(rows: T[], size: number, insert: (part: T[]) => Promise<unknown>): Promise<void> {
  for (let n = 0; n < rows.length; n += size) await insert(rows.slice(n, n + size))
}

function deviceRow(orgId: string, n: number, random: () => number): Insertable<DeviceRow> {
  const kind = pick(kinds, random())
  const hostname = `${pick(cities, random())}-${kind}-${String(n).padStart(6, '0')}`
  const displayName = n % 3 === 0 ? `${kind} of desk ${n % 97}` : null
  const server = kind === 'srv' || kind === 'sql' || kind === 'web'
  const id = newId()
  return {
    id,
    org_id: orgId,
    site_id: null,
    agent_id: id.replaceAll('-', '').padEnd(64, '0'),
    token_hash: '',
    enrollment_key_id: null,
    hostname,
    hostname_key: fold(hostname),
    display_name: displayName,
    display_name_key: displayName === null ? null : fold(displayName),
    os_type: pick(['windows', 'windows', 'linux', 'macos'], random()),
    os_version: pick(['Windows 11', 'Windows Server 2022', 'Debian 13', 'macOS 26'], random()),
    os_build: null,
    architecture: pick(['x64', 'x64', 'arm64'], random()),
    agent_version: pick(['1.4.0', '1.4.1', '1.3.9'], random()),
    status: pick(['online', 'online', 'online', 'offline'], random()),
    last_seen_at: at(n % 1_000_000),
    last_seen_ip: '203.0.113.7',
    enrollment_ip: null,
    enrolled_at: at(n % 500_000),
    device_role: server ? 'server' : 'workstation',
    device_role_source: 'auto',
    is_virtual: 0,
    virtualization_platform: null,
    is_headless: 0,
    last_user: `user-${n % 500}`,
    uptime_seconds: Math.floor(random() * 1e7),
    pending_reboot: random() < 0.1 ? 1 : 0,
    pending_patches: Math.floor(random() * 4),
    maintenance_until: null,
    quarantined_at: null,
    quarantined_reason: null,
    watchdog_status: null,
    manufacturer: 'Example Inc.',
    model: pick(models, random()),
    serial_number: `SN${n}`,
    cpu_model: 'Example 9 3.20 GHz',
    cpu_cores: pick([2, 4, 8, 16, 32], random()),
    cpu_threads: 16,
    ram_total_mb: pick([4096, 8192, 16_384, 65_536], random()),
    disk_total_gb: 512,
    gpu_model: null,
    motherboard_manufacturer: null,
    motherboard_model: null,
    bios_version: '1.2.3',
    metrics_at: at(n % 1_000_000),
    cpu_percent: random() * 100,
    ram_percent: random() * 100,
    ram_used_mb: 4000,
    disk_percent: random() * 100,
    disk_used_gb: 200,
    process_count: 250,
    ...stamps,
  }
}

function tagsOf(id: string, n: number, random: () => number) {
  const own = new Set([pick(tags, random()), ...(n % 1000 === 0 ? ['rare'] : [])])
  return [...own].map((tag) => ({ device_id: id, tag }))
}

const programs = Array.from({ length: 300 }, (_, n) => `Program ${n}`)

function softwareOf(id: string, random: () => number) {
  return [0, 1, 2].map((position) => {
    const name = pick(programs, random())
    const unknown = { publisher: null, install_date: null, install_location: null }
    return { device_id: id, position, name, name_key: fold(name), version: '1.0', ...unknown }
  })
}

function alertRow(device: Insertable<DeviceRow>, random: () => number): AlertRow {
  const title = `Disk almost full on ${device.hostname}`
  const message = 'Less than a tenth of the space is free'
  return {
    id: newId(),
    org_id: device.org_id,
    device_id: device.id,
    rule_id: null,
    status: pick(['active', 'acknowledged', 'resolved'], random()),
    severity: pick(['critical', 'high', 'medium', 'low'], random()),
    title,
    title_key: fold(title),
    message,
    message_key: fold(message),
    context: null,
    triggered_at: at(0),
    acknowledged_at: null,
    acknowledged_by: null,
    escalated_at: null,
    escalated_by: null,
    resolved_at: null,
    resolved_by: null,
    resolution_note: null,
    ...stamps,
  }
}

async function addScripts(tx: Db, orgIds: readonly string[]): Promise<void> {
  const rows = orgIds.map((orgId, n): ScriptRow => {
    const name = `Clean the disk ${n}`
    const description = 'Removes what nobody needs any more'
    return {
      id: newId(),
      org_id: orgId,
      partner_id: null,
      name,
      name_key: fold(name),
      description,
      description_key: fold(description),
      category: null,
      os_types: '["linux"]',
      language: 'bash',
      content: 'true',
      parameters: null,
      timeout_seconds: 300,
      run_as: 'system',
      is_system: 0,
      version: 1,
      created_by: null,
      deleted_at: null,
      ...stamps,
    }
  })
  await inParts(rows, 50, (part) => tx.insertInto('scripts').values(part).execute())
}
