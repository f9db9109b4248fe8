import { addSeconds, type Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { isTenantGone } from '../rules.ts'
import { cloneDetectionSeconds, type LastRecovery } from './rules.ts'

/* Queries by the id of the device that authenticated or proves itself. */

export async function findKey(db: Db, deviceId: string): Promise<string | undefined> {
  const query = db.selectFrom('agent_keys').select('public_key').where('device_id', '=', deviceId)
  return (await query.executeTakeFirst())?.public_key
}

/** False where the device has a key already, which stays. */
export async function insertKey(db: Db, deviceId: string, publicKey: string, now: Instant): Promise<boolean> {
  const { numInsertedOrUpdatedRows = 0n } = await db
    .insertInto('agent_keys')
    .values({ device_id: deviceId, public_key: publicKey, created_at: now, proved_at: null })
    .onConflict((conflict) => conflict.column('device_id').doNothing())
    .executeTakeFirst()
  return numInsertedOrUpdatedRows > 0n
}

export async function deleteKey(db: Db, deviceId: string): Promise<void> {
  await db.deleteFrom('agent_keys').where('device_id', '=', deviceId).execute()
}

export type ProvableDevice = {
  id: string
  org_id: string
  hostname: string
  public_key: string | null
  is_gone: boolean
}

/** The device of an agent id with its key and the state of its tenants, in one query whether or not there is one. */
export async function findProvable(db: Db, agentId: string): Promise<ProvableDevice | undefined> {
  const row = await db
    .selectFrom('devices')
    .innerJoin('organizations as o', 'o.id', 'devices.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .leftJoin('agent_keys as k', 'k.device_id', 'devices.id')
    .select(['devices.id', 'devices.org_id', 'devices.hostname', 'k.public_key'])
    .select(['o.status as org_status', 'o.deleted_at as org_deleted_at'])
    .select(['p.status as partner_status', 'p.deleted_at as partner_deleted_at'])
    .where('devices.agent_id', '=', agentId)
    .executeTakeFirst()
  return row && { ...row, is_gone: isTenantGone(row) }
}

/** Whether a challenge issued at `issued` is answered for the first time, and none that was issued later. */
export async function spendChallenge(db: Db, deviceId: string, issued: Instant): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('agent_keys')
    .set({ proved_at: issued })
    .where('device_id', '=', deviceId)
    .where((eb) => eb.or([eb('proved_at', 'is', null), eb('proved_at', '<', issued)]))
    .executeTakeFirst()
  return numUpdatedRows > 0n
}

/** Of a locked device with a key: when its tokens were last recovered and issued, and used. */
export const findLastRecovery = (db: Db, deviceId: string): Promise<LastRecovery | undefined> =>
  db
    .selectFrom('devices')
    .innerJoin('agent_keys as k', 'k.device_id', 'devices.id')
    .select(['k.proved_at', 'devices.token_issued_at', 'devices.last_seen_at'])
    .where('devices.id', '=', deviceId)
    .executeTakeFirst()

/**
 * Whether an alert of this rule is open, or less than an hour old: the same for all replicas. Dismissed and suppressed alerts
 * count as closed, so that they cannot hide a stolen key for good.
 */
export async function hasClonedMachineAlert(
  db: Db,
  deviceId: string,
  rule: string,
  now: Instant,
): Promise<boolean> {
  const alert = await db
    .selectFrom('alerts')
    .select('id')
    .where('device_id', '=', deviceId)
    .where('rule_id', '=', rule)
    .where((eb) =>
      eb.or([
        eb('status', 'in', ['active', 'acknowledged']),
        eb('triggered_at', '>', addSeconds(now, -cloneDetectionSeconds)),
      ]),
    )
    .limit(1)
    .executeTakeFirst()
  return alert !== undefined
}
