import type { CursorPage, CursorPageQuery } from '../../core/page.ts'
import { systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { readCursorPage } from '../../storage/query/pages.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { rowList } from '../../storage/query/row-list.ts'
import { inScope } from '../../storage/query/scope.ts'
import type { AgentRolloutDeviceRow } from '../../storage/schema/agent-tables.ts'
import type { RolloutDevice, RolloutDeviceState } from './contract.ts'
import type { Tally } from './progress.ts'
import type { OverdueDevice, RolloutRecord } from './rules.ts'

/* The devices of a rollout. Every writer of one holds a lock on the rollout, shared or exclusive. */

const offering = prepared((db, p: { id: string; deviceId: string; now: Instant }) =>
  db
    .updateTable('agent_rollout_devices')
    .set({ state: 'offered', offered_at: p.now })
    .where('rollout_id', '=', p.id)
    .where('device_id', '=', p.deviceId)
    .where('state', '=', 'waiting'),
)

/** The first offer changes the state of a device; later offers change nothing. */
export const markOffered = (db: Db, id: string, deviceId: string, now: Instant) =>
  offering(db, { id, deviceId, now })

const reaching = prepared((db, p: { id: string; deviceId: string; to: string; now: Instant }) =>
  db
    .updateTable('agent_rollout_devices')
    .set({ state: p.to, settled_at: p.now, reason: null })
    .where('rollout_id', '=', p.id)
    .where('device_id', '=', p.deviceId)
    .where('state', 'in', ['waiting', 'offered', 'soaking']),
)

/** The device reports the version: it must stay alive for the soak time (soaking), or has (updated). */
export const markReached = (db: Db, id: string, deviceId: string, to: 'soaking' | 'updated', now: Instant) =>
  reaching(db, { id, deviceId, to, now })

export type DeviceOutcome = { to: RolloutDeviceState; reason: string }

/** Settles a device if it is in one of these states; false when it is not. */
export async function settleDevice(
  db: Db,
  id: string,
  deviceId: string,
  from: readonly RolloutDeviceState[],
  { to, reason, now }: DeviceOutcome & { now: Instant },
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('agent_rollout_devices')
    .set({ state: to, settled_at: now, reason })
    .where('rollout_id', '=', id)
    .where('device_id', '=', deviceId)
    .where('state', 'in', from)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

/** Takes an offer back: the device waits again, with the reason. */
export async function returnToWaiting(db: Db, id: string, deviceId: string, reason: string): Promise<void> {
  await db
    .updateTable('agent_rollout_devices')
    .set({ state: 'waiting', offered_at: null, reason })
    .where('rollout_id', '=', id)
    .where('device_id', '=', deviceId)
    .where('state', '=', 'offered')
    .execute()
}

const inState = (db: Db, id: string, state: RolloutDeviceState) =>
  db.selectFrom('agent_rollout_devices').where('rollout_id', '=', id).where('state', '=', state)

export const countFailed = (db: Db, id: string): Promise<number> => countRowsOf(inState(db, id, 'failed'))

export type FailureReason = { reason: string; devices: number }

/** Reasons of failures, the most frequent first. */
export function listFailureReasons(db: Db, id: string, limit: number): Promise<FailureReason[]> {
  return inState(db, id, 'failed')
    .where('reason', 'is not', null)
    .select((eb) => [eb.ref('reason').$notNull().as('reason'), eb.fn.countAll<number>().as('devices')])
    .groupBy('reason')
    .orderBy('devices', 'desc')
    .orderBy('reason')
    .limit(limit)
    .execute()
}

/** Number of devices in each state. */
export function countByState(db: Db, id: string): Promise<{ state: string; devices: number }[]> {
  return db
    .selectFrom('agent_rollout_devices')
    .select((eb) => ['state', eb.fn.countAll<number>().as('devices')])
    .where('rollout_id', '=', id)
    .groupBy('state')
    .orderBy('state')
    .execute()
}

/** Reads every device of the rollout. */
export function tallyByWave(db: Db, id: string): Promise<Tally[]> {
  return db
    .selectFrom('agent_rollout_devices')
    .select((eb) => [
      'wave',
      eb.ref('state').$castTo<RolloutDeviceState>().as('state'),
      eb.fn.countAll<number>().as('devices'),
      eb.fn.max('offered_at').as('offeredAt'),
      eb.fn.max('settled_at').as('settledAt'),
    ])
    .where('rollout_id', '=', id)
    .groupBy(['wave', 'state'])
    .execute()
}

/** Number of devices that report the version now, by wave. */
export async function countOnVersion(db: Db, { id, version }: RolloutRecord): Promise<Map<number, number>> {
  const found = await db
    .selectFrom('agent_rollout_devices as rd')
    .innerJoin('devices', 'devices.id', 'rd.device_id')
    .select((eb) => ['rd.wave', eb.fn.countAll<number>().as('devices')])
    .where('rd.rollout_id', '=', id)
    .where('devices.agent_version', '=', version)
    .groupBy('rd.wave')
    .execute()
  return new Map(found.map(({ wave, devices }) => [wave, devices]))
}

const withDevices = (db: Db, { id, wave }: RolloutRecord, state: RolloutDeviceState) =>
  db
    .selectFrom('agent_rollout_devices as rd')
    .innerJoin('devices', 'devices.id', 'rd.device_id')
    .where('rd.rollout_id', '=', id)
    .where('rd.state', '=', state)
    .where('rd.wave', '<=', wave)

/**
 * Number of devices of the open waves that are online, take updates and were not offered the version yet, by organization
 * and own window.
 */
export function countWaiting(
  db: Db,
  rollout: RolloutRecord,
): Promise<{ orgId: string; ownWindow: string | null; devices: number }[]> {
  return withDevices(db, rollout, 'waiting')
    .where('devices.status', 'in', ['online', 'updating'])
    .where('devices.auto_update', '=', 1)
    .where(({ or, eb }) =>
      or([
        eb('devices.auto_update_acknowledged', 'is', null),
        eb('devices.auto_update_acknowledged', '=', 1),
      ]),
    )
    .select(['devices.org_id as orgId', 'devices.maintenance_window as ownWindow'])
    .select(({ fn }) => fn.countAll<number>().as('devices'))
    .groupBy(['devices.org_id', 'devices.maintenance_window'])
    .execute()
}

/** Devices that were offered the version at `before` or earlier, and do not report it. */
export async function findNotUpdated(
  db: Db,
  rollout: RolloutRecord,
  before: Instant,
  limit: number,
): Promise<(Omit<OverdueDevice, 'window'> & { id: string; orgId: string; ownWindow: string | null })[]> {
  const found = await withDevices(db, rollout, 'offered')
    .select((eb) => [
      'devices.id',
      'devices.status',
      'devices.agent_version as agentVersion',
      'rd.from_version as fromVersion',
      'devices.last_seen_at as lastSeenAt',
      eb.ref('rd.offered_at').$notNull().as('offeredAt'),
      'devices.auto_update',
      'devices.auto_update_acknowledged',
      'devices.org_id as orgId',
      'devices.maintenance_window as ownWindow',
      'devices.update_since as updateSince',
      'rd.reason',
    ])
    .where('rd.offered_at', '<=', before)
    .limit(limit)
    .execute()
  return found.map(({ auto_update, auto_update_acknowledged, ...device }) => ({
    ...device,
    isWanted: auto_update === 1 && auto_update_acknowledged !== 0,
  }))
}

const takenOut = ['maintenance', 'decommissioned', 'quarantined']

/** Soaking devices not seen since `before`, except those that users took out. */
export function findSilent(
  db: Db,
  rollout: RolloutRecord,
  before: Instant,
  limit: number,
): Promise<{ id: string }[]> {
  return withDevices(db, rollout, 'soaking')
    .select('devices.id')
    .where('devices.last_seen_at', '<', before)
    .where('devices.status', 'not in', takenOut)
    .limit(limit)
    .execute()
}

/** Soaking devices in maintenance that reported the version by `before`: their silence or liveness proves nothing. */
export function findInMaintenance(
  db: Db,
  rollout: RolloutRecord,
  before: Instant,
  limit: number,
): Promise<{ id: string }[]> {
  return withDevices(db, rollout, 'soaking')
    .select('devices.id')
    .where('rd.settled_at', '<=', before)
    .where('devices.status', '=', 'maintenance')
    .limit(limit)
    .execute()
}

/** Devices of the open waves that are no longer updated: users took them out, or their organization is deleted. */
export async function findOutOfUse(
  db: Db,
  rollout: RolloutRecord,
  limit: number,
): Promise<{ id: string; status: string }[]> {
  const of = (state: RolloutDeviceState) =>
    withDevices(db, rollout, state)
      .select(['devices.id', 'devices.status'])
      .where((eb) =>
        eb.or([
          eb('devices.status', 'in', ['decommissioned', 'quarantined']),
          eb.not(inScope(systemScope, 'devices.org_id')),
        ]),
      )
      .limit(limit)
      .execute()
  return [...(await of('waiting')), ...(await of('offered')), ...(await of('soaking'))]
}

/** Whether the open wave is done: checked again under the lock on the rollout. */
export async function isWaveDone(db: Db, { id, wave }: RolloutRecord): Promise<boolean> {
  const isAny = async (state: RolloutDeviceState, min: number) => {
    const found = inState(db, id, state).where('wave', '>=', min).where('wave', '<=', wave)
    return (await found.select('device_id').limit(1).executeTakeFirst()) !== undefined
  }
  return !(await isAny('offered', 0)) && !(await isAny('soaking', 0)) && isAny('updated', wave)
}

/** A device and the wave it was assigned to. */
export type NewRolloutDevice = Pick<
  AgentRolloutDeviceRow,
  'device_id' | 'org_id' | 'wave' | 'from_version' | 'is_held'
>

const drawn = rowList<NewRolloutDevice>({
  device_id: 'text',
  org_id: 'text',
  wave: 'bigint',
  from_version: 'text',
  is_held: 'bigint',
})

const insertion = prepared((db, p: { id: string; rows: string; state: RolloutDeviceState }) =>
  db
    .insertInto('agent_rollout_devices')
    .columns(['rollout_id', 'state', 'device_id', 'org_id', 'wave', 'from_version', 'is_held'])
    .expression((eb) =>
      eb
        .selectFrom(drawn.as(p.rows, 'drawn'))
        .select((of) => [of.val(p.id).as('rollout_id'), of.val(p.state).as('state')])
        .select(['drawn.device_id', 'drawn.org_id', 'drawn.wave', 'drawn.from_version', 'drawn.is_held']),
    ),
)

export async function insertRolloutDevices(
  db: Db,
  id: string,
  places: readonly NewRolloutDevice[],
): Promise<void> {
  if (places.length > 0) await insertion(db, { id, rows: drawn.of(places), state: 'waiting' })
}

/** Deletes some devices of an unfinished assignment; returns how many. */
export async function deleteRolloutDevices(db: Db, id: string, limit: number): Promise<number> {
  const { numDeletedRows } = await db
    .deleteFrom('agent_rollout_devices')
    .where('rollout_id', '=', id)
    .where('device_id', 'in', (eb) =>
      eb.selectFrom('agent_rollout_devices').select('device_id').where('rollout_id', '=', id).limit(limit),
    )
    .executeTakeFirstOrThrow()
  return Number(numDeletedRows)
}

/** Ordered by wave and state. */
export async function listRolloutDevices(
  db: Db,
  id: string,
  {
    state,
    wave,
    ...query
  }: CursorPageQuery & { state?: RolloutDeviceState | undefined; wave?: number | undefined },
): Promise<CursorPage<RolloutDevice>> {
  const found = db
    .selectFrom('agent_rollout_devices as rd')
    .innerJoin('devices', 'devices.id', 'rd.device_id')
    .where('rd.rollout_id', '=', id)
    .where(inScope(systemScope, 'rd.org_id'))
    .$if(state !== undefined, (q) => q.where('rd.state', '=', state!))
    .$if(wave !== undefined, (q) => q.where('rd.wave', '=', wave! - 1))
  return readCursorPage(
    found,
    query,
    {
      by: ['rd.wave', 'rd.state', 'rd.device_id'],
      keyOf: (one: RolloutDevice) => [one.wave - 1, one.state, one.id],
    },
    (q) =>
      q.select((eb) => [
        'devices.id',
        'devices.org_id as orgId',
        'devices.hostname',
        'devices.status',
        eb('rd.wave', '+', 1).as('wave'),
        eb.ref('rd.state').$castTo<RolloutDeviceState>().as('state'),
        'rd.from_version as fromVersion',
        'devices.agent_version as agentVersion',
        'rd.offered_at as offeredAt',
        'rd.settled_at as settledAt',
        'rd.reason',
      ]),
    (row) => row,
  )
}
