import type { Instant } from '../core/time.ts'
import { emit } from '../events/outbox.ts'
import type { Db } from '../storage/open.ts'
import type { Device } from './contract.ts'
import { difference } from './rules.ts'

/* Webhook events about devices. */

type Named = { id: string; orgId: string; hostname: string }

/** Emits the changed fields of a device; nothing when there are none. */
export async function emitUpdated(
  db: Db,
  { id: deviceId, orgId, hostname }: Named,
  changes: Record<string, unknown>,
  now: Instant,
): Promise<void> {
  const fields = Object.keys(changes)
  if (fields.length === 0) return
  const data = { ...changes, deviceId, hostname, fields }
  await emit(db, { orgId, type: 'device.updated', data }, now)
}

export const emitChanged = (db: Db, before: Device, after: Device, now: Instant): Promise<void> =>
  emitUpdated(db, after, difference(before, after).after, now)

type TaggedRow = { id: string; org_id: string; hostname: string; tags: string }

/** Emits the devices whose tags are no longer those in `before`. */
export async function emitTagged(db: Db, before: readonly TaggedRow[], now: Instant): Promise<void> {
  const ids = before.map(({ id }) => id)
  const rows = await db.selectFrom('devices').select(['id', 'tags']).where('id', 'in', ids).execute()
  const after = new Map(rows.map(({ id, tags }) => [id, tags]))
  for (const { id, org_id: orgId, hostname, tags } of before) {
    const is = after.get(id) ?? tags
    if (is !== tags) await emitUpdated(db, { id, orgId, hostname }, { tags: JSON.parse(is) }, now)
  }
}

/** A device whose status changed without a user's action. */
export type StatusChange = {
  id: string
  org_id: string
  status: string
  hostname: string
  display_name: string | null
  agent_version: string
  last_seen_at: string | null
}

/** The columns of a `StatusChange`. */
export const statusChangeColumns = [
  'id',
  'org_id',
  'status',
  'hostname',
  'display_name',
  'agent_version',
  'last_seen_at',
] as const

/** Emits devices that went online or offline without a user's action. */
export async function emitStatusChanges(db: Db, moved: readonly StatusChange[], now: Instant): Promise<void> {
  for (const { id: deviceId, org_id: orgId, hostname, ...device } of moved) {
    const { display_name: displayName, last_seen_at: lastSeenAt, agent_version: agentVersion } = device
    if (device.status === 'offline') {
      const data = { deviceId, hostname, displayName, lastSeenAt }
      await emit(db, { orgId, type: 'device.offline', data }, now)
    }
    if (device.status === 'online') {
      const data = { deviceId, hostname, agentVersion, status: 'online' }
      await emit(db, { orgId, type: 'device.online', data }, now)
    }
  }
}
