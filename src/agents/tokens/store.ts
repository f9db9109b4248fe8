import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'
import type { ActiveTokens, Rotation } from './rules.ts'

/* Queries by the id of the device that authenticated. */

const activeTokenColumns = [
  'devices.token_hash',
  'devices.watchdog_token_hash',
  'devices.token_issued_at',
] as const

export const rotationColumns = [
  'r.pending_token_hash',
  'r.pending_watchdog_hash',
  'r.pending_until',
  'r.previous_token_hash',
  'r.previous_watchdog_hash',
  'r.previous_until',
] as const

const tokensByDevice = prepared((db, p: { deviceId: string }) =>
  db
    .selectFrom('devices')
    .leftJoin('agent_rotations as r', 'r.device_id', 'devices.id')
    .select([...activeTokenColumns, ...rotationColumns])
    .where('devices.id', '=', p.deviceId),
)

/**
 * Every token of a device, in one statement: reading them one by one could miss a token that is being confirmed in
 * both places.
 */
export async function findTokens(db: Db, deviceId: string): Promise<(ActiveTokens & Rotation) | undefined> {
  const [row] = await tokensByDevice(db, { deviceId })
  return row
}

/** The same, locked until the transaction ends. */
export async function lockTokens(db: Db, deviceId: string): Promise<(ActiveTokens & Rotation) | undefined> {
  await forUpdate(db.selectFrom('devices').select('id').where('id', '=', deviceId)).execute()
  return findTokens(db, deviceId)
}

export async function saveRotation(db: Db, deviceId: string, rotation: Rotation): Promise<void> {
  await db
    .insertInto('agent_rotations')
    .values({ device_id: deviceId, ...rotation })
    .onConflict((conflict) => conflict.column('device_id').doUpdateSet(rotation))
    .execute()
}

export async function saveActiveTokens(db: Db, deviceId: string, current: ActiveTokens): Promise<void> {
  await db.updateTable('devices').set(current).where('id', '=', deviceId).execute()
}

/** An agent that enrolls again gets new tokens outside of any rotation. */
export async function deleteRotation(db: Db, deviceId: string): Promise<void> {
  await db.deleteFrom('agent_rotations').where('device_id', '=', deviceId).execute()
}

/** Deletes rotations whose tokens all expired before `before`. */
export async function sweepRotations(db: Db, before: Instant): Promise<void> {
  await db
    .deleteFrom('agent_rotations')
    .where((eb) => eb.or([eb('pending_until', 'is', null), eb('pending_until', '<', before)]))
    .where((eb) => eb.or([eb('previous_until', 'is', null), eb('previous_until', '<', before)]))
    .execute()
}
