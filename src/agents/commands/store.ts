import { Problem } from '../../core/errors.ts'
import type { CursorPage, CursorPageQuery } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { checkDevice } from '../../devices/records.ts'
import { devicesIn } from '../../devices/store.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { bytesOf, equalsText, sumOf } from '../../storage/query/expressions.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { readCursorPage } from '../../storage/query/pages.ts'
import type { AgentCommandRow, AgentRole } from '../../storage/schema/agent-tables.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { TenantColumns } from '../../tenancy/rules.ts'
import type { AgentCommand } from '../contract.ts'
import type { DeviceCommand, DeviceCommandDetail, Outcome } from './contract.ts'
import { failedOutcome } from './rules.ts'

const commandRows = rowsOf<AgentCommandRow>()({ json: ['payload', 'result'] })

/** All columns except the outcome, which may have megabytes. */
const columns = [
  'id',
  'device_id',
  'type',
  'payload',
  'target_role',
  'status',
  'sent_count',
  'created_by',
  'created_at',
  'expires_at',
  'sent_at',
  'completed_at',
] as const

/** State of the tenant of a device. */
export function tenancyOf(db: Db, deviceId: string): Promise<TenantColumns> {
  return db
    .selectFrom('devices')
    .innerJoin('organizations as o', 'o.id', 'devices.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .select(['o.status as org_status', 'o.deleted_at as org_deleted_at'])
    .select(['p.status as partner_status', 'p.deleted_at as partner_deleted_at'])
    .where('devices.id', '=', deviceId)
    .executeTakeFirstOrThrow()
}

/** Number of open commands of a device. */
export const countOpen = (db: Db, deviceId: string): Promise<number> =>
  countRowsOf(
    db.selectFrom('agent_commands').where('device_id', '=', deviceId).where('completed_at', 'is', null),
  )

export async function insertCommand(db: Db, command: DeviceCommandDetail & { orgId: string }): Promise<void> {
  await db.insertInto('agent_commands').values(commandRows.write(command)).execute()
}

/** Finished commands kept of a device. */
const keptCommands = 1000

/** Deletes the oldest finished commands of a device beyond those that are kept. The caller has locked the device. */
export async function deleteOldestCommands(db: Db, deviceId: string): Promise<void> {
  const oldest = db
    .selectFrom('agent_commands')
    .select('id')
    .where('device_id', '=', deviceId)
    .where('completed_at', 'is not', null)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .offset(keptCommands)
    .limit(100)
  const { numDeletedRows } = await db
    .deleteFrom('agent_commands')
    .where('id', 'in', oldest)
    .executeTakeFirstOrThrow()
  if (numDeletedRows > 0n) await recountAll(db, [deviceId])
}

type CommandQuery = CursorPageQuery & { status?: string | undefined; type?: string | undefined }

/** Newest first. @throws not_found, also for a device outside the scope */
export async function listCommands(
  db: Db,
  scope: Scope,
  deviceId: string,
  query: CommandQuery,
): Promise<CursorPage<DeviceCommand>> {
  await checkDevice(db, scope, deviceId)
  const { status, type } = query
  const found = db
    .selectFrom('agent_commands')
    .where('device_id', '=', deviceId)
    .$if(status !== undefined, (q) => q.where('status', '=', status!))
    .$if(type !== undefined, (q) => q.where('type', '=', type!))
  return readCursorPage(
    found,
    query,
    { by: ['created_at', 'id'], direction: 'desc', keyOf: ({ createdAt, id }) => [createdAt, id] },
    (q) => q.select(columns),
    (row) => commandRows.read(row) as DeviceCommand,
  )
}

/** @throws not_found, also for a command of a device outside the scope */
export async function getCommand(
  db: Db,
  scope: Scope,
  { deviceId, id }: { deviceId: string; id: string },
): Promise<DeviceCommandDetail> {
  const row = await db
    .selectFrom('agent_commands')
    .select([...columns, 'result'])
    .where('id', '=', id)
    .where('device_id', '=', deviceId)
    .where(
      'device_id',
      'in',
      devicesIn(db, ofOne(scope)).select('devices.id').where('devices.id', '=', deviceId),
    )
    .executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Command not found')
  return commandRows.read(row) as unknown as DeviceCommandDetail
}

/* Queries by the id of the device whose agent has authenticated. */

/** Most commands claimed at a time. */
const maxClaimed = 10

/**
 * Claims the oldest pending commands of an agent or its watchdog and marks them as sent: no two callers get the same
 * one.
 */
export async function claimCommands(
  db: Db,
  { deviceId, role, now }: { deviceId: string; role: AgentRole; now: Instant },
): Promise<AgentCommand[]> {
  const waiting = db
    .selectFrom('agent_commands')
    .select(['id', 'type', 'payload'])
    .where('device_id', '=', deviceId)
    .where('target_role', '=', role)
    .where(equalsText('status', 'pending'))
    .where('expires_at', '>', now)
    .orderBy('created_at')
    .orderBy('id')
    .limit(maxClaimed)
  const rows = await forUpdate(waiting, { skipLocked: true }).execute()
  if (rows.length === 0) return []
  const ids = rows.map(({ id }) => id)
  await db
    .updateTable('agent_commands')
    .set((eb) => ({ status: 'sent', sent_at: now, sent_count: eb('sent_count', '+', 1) }))
    .where('id', 'in', ids)
    .execute()
  return rows.map(({ id, type, payload }) => ({ id, type, payload: JSON.parse(payload) }))
}

/**
 * Locks devices before their commands, in the same order as users' changes and heartbeats: otherwise they could
 * deadlock.
 */
export async function lockDeviceRows(db: Db, ids: readonly string[]): Promise<void> {
  await forUpdate(db.selectFrom('devices').select('id').where('id', 'in', ids).orderBy('id')).execute()
}

/** A command of a device, locked until the transaction ends. */
export async function lockCommand(db: Db, { deviceId, id }: { deviceId: string; id: string }) {
  await lockDeviceRows(db, [deviceId])
  const found = db
    .selectFrom('agent_commands')
    .select(['type', 'payload', 'target_role', 'status', 'sent_count'])
    .where('id', '=', id)
    .where('device_id', '=', deviceId)
  return forUpdate(found).executeTakeFirst()
}

/** Returns the stored bytes of the outcome. */
export async function endCommand(db: Db, id: string, outcome: Outcome, now: Instant): Promise<number> {
  const status = outcome.status === 'completed' ? 'completed' : 'failed'
  await db.updateTable('agent_commands').set({ status, completed_at: now }).where('id', '=', id).execute()
  return saveOutcome(db, id, outcome)
}

/** Returns the stored bytes of the outcome. */
export async function saveOutcome(db: Db, id: string, outcome: Outcome): Promise<number> {
  const result = JSON.stringify(outcome)
  await db.updateTable('agent_commands').set({ result }).where('id', '=', id).execute()
  return Buffer.byteLength(result)
}

const bytes = bytesOf(['result'], 0)

/** The oldest outcomes of a device that are larger than `over`. */
export const listOldestOutputs = (
  db: Db,
  deviceId: string,
  { over, limit, except }: { over: number; limit: number; except?: string | undefined },
): Promise<{ id: string; bytes: number }[]> =>
  db
    .selectFrom('agent_commands')
    .select(['id', bytes.as('bytes')])
    .where('device_id', '=', deviceId)
    .where('completed_at', 'is not', null)
    .where(bytes, '>', over)
    .$if(except !== undefined, (q) => q.where('id', '!=', except!))
    .orderBy('completed_at')
    .orderBy('id')
    .limit(limit)
    .execute()

export async function getOutcome(db: Db, id: string): Promise<Outcome> {
  const found = db.selectFrom('agent_commands').select('result').where('id', '=', id)
  return JSON.parse((await found.executeTakeFirstOrThrow()).result!) as Outcome
}

/** Recomputes the stored bytes of a device's outcomes, from which its organization's total is computed. */
export async function recountBytes(db: Db, deviceId: string): Promise<number> {
  const [counted] = await recountAll(db, [deviceId])
  return counted?.command_bytes ?? 0
}

export const recountAll = (db: Db, deviceIds: readonly string[]) =>
  db
    .updateTable('devices')
    .set((eb) => ({
      command_bytes: eb
        .selectFrom('agent_commands')
        .select(sumOf(bytes).as('sum'))
        .whereRef('agent_commands.device_id', '=', 'devices.id'),
    }))
    .where('id', 'in', deviceIds)
    .returning('command_bytes')
    .execute()

/**
 * Fails the open commands of a type, because a user decided anew: an older decision must not arrive after the new
 * one.
 */
export async function supersedeCommands(
  db: Db,
  { deviceId, type, now }: { deviceId: string; type: string; now: Instant },
): Promise<void> {
  const result = JSON.stringify(failedOutcome('A later command replaced it'))
  await db
    .updateTable('agent_commands')
    .set({ status: 'failed', completed_at: now, result })
    .where('device_id', '=', deviceId)
    .where('type', '=', type)
    .where('completed_at', 'is', null)
    .execute()
}

/** Saves whether users allow the agent to update itself. */
export async function setDesiredAutoUpdate(
  db: Db,
  deviceId: string,
  change: { enabled: boolean; now: Instant },
): Promise<void> {
  await db
    .updateTable('devices')
    .set({ auto_update: change.enabled ? 1 : 0, updated_at: change.now })
    .where('id', '=', deviceId)
    .execute()
}

/** Saves the setting that the agent confirms. */
export async function setAcknowledgedAutoUpdate(db: Db, deviceId: string, enabled: boolean): Promise<void> {
  await db
    .updateTable('devices')
    .set({ auto_update_acknowledged: enabled ? 1 : 0 })
    .where('id', '=', deviceId)
    .execute()
}
