import { randomBytes } from 'node:crypto'
import { fold } from '../../src/core/fold.ts'
import { newId } from '../../src/core/new-id.ts'
import type { Storage } from '../../src/storage/open.ts'

export const now = '2026-03-01T12:00:00.000Z'
const stamps = { created_at: now, updated_at: now }

export async function addPartner(storage: Storage): Promise<string> {
  const id = newId()
  const rest = { type: 'msp', plan: 'free', status: 'active', settings: '{}', sso_config: null }
  const limits = { max_organizations: null, max_devices: null, billing_email: null, deleted_at: null }
  const row = { id, name: id, slug: id, ...rest, ...limits, ...stamps }
  await storage.write((tx) => tx.insertInto('partners').values(row).execute())
  return id
}

export async function addOrganization(storage: Storage, partnerId: string): Promise<string> {
  const id = newId()
  const rest = { type: 'customer', status: 'active', settings: '{}', sso_config: null, max_devices: null }
  const more = { contract_start: null, contract_end: null, billing_contact: null, deleted_at: null }
  const row = { id, partner_id: partnerId, name: id, slug: id, ...rest, ...more, ...stamps }
  await storage.write((tx) => tx.insertInto('organizations').values(row).execute())
  return id
}

type NewDevice = { orgId: string; siteId?: string | null; hostname: string; displayName?: string | null }

export const deviceRow = ({ orgId, siteId = null, hostname, displayName = null }: NewDevice) => ({
  id: newId(),
  org_id: orgId,
  site_id: siteId,
  agent_id: randomBytes(32).toString('hex'),
  token_hash: randomBytes(32).toString('hex'),
  hostname,
  hostname_key: fold(hostname),
  display_name: displayName,
  display_name_key: displayName === null ? null : fold(displayName),
  os_type: 'linux',
  os_version: 'Debian 12',
  architecture: 'x64',
  agent_version: '0.1.0',
  status: 'online',
  enrolled_at: now,
  device_role: 'unknown',
  device_role_source: 'auto',
  is_virtual: 0,
  is_headless: 0,
  pending_reboot: 0,
  ...stamps,
})

export async function addDevice(storage: Storage, device: NewDevice): Promise<string> {
  const row = deviceRow(device)
  await storage.write((tx) => tx.insertInto('devices').values(row).execute())
  return row.id
}

export async function addScript(
  storage: Storage,
  script: { orgId?: string; partnerId?: string; name: string; description?: string; deleted?: boolean },
): Promise<string> {
  const { orgId = null, partnerId = null, name, description = null } = script
  const row = {
    id: newId(),
    org_id: orgId,
    partner_id: partnerId,
    name,
    name_key: fold(name),
    description,
    description_key: description === null ? null : fold(description),
    os_types: '["linux"]',
    language: 'bash',
    content: 'true',
    timeout_seconds: 300,
    run_as: 'system',
    is_system: orgId === null && partnerId === null ? 1 : 0,
    version: 1,
    deleted_at: script.deleted ? now : null,
    ...stamps,
  }
  await storage.write((tx) => tx.insertInto('scripts').values(row).execute())
  return row.id
}

export async function addAlert(
  storage: Storage,
  alert: { orgId: string; deviceId?: string; title: string; message?: string },
): Promise<string> {
  const { orgId, deviceId = null, title, message = null } = alert
  const row = {
    id: newId(),
    org_id: orgId,
    device_id: deviceId,
    status: 'active',
    severity: 'high',
    title,
    title_key: fold(title),
    message,
    message_key: message === null ? null : fold(message),
    triggered_at: now,
    ...stamps,
  }
  await storage.write((tx) => tx.insertInto('alerts').values(row).execute())
  return row.id
}
