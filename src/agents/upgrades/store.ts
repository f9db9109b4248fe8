import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { equalsText } from '../../storage/query/expressions.ts'
import { forNoKeyUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'
import type { AgentTargetColumns, DeviceUpdateColumns } from '../../storage/schema/agent-tables.ts'
import type { ReleaseStep } from '../versions/upgrade-path.ts'
import type { UpdateChange } from './rules.ts'

/* Queries by the id of a device whose agent has authenticated. */

/** Devices with the columns that determine their target version. */
export const targetRows = (db: Db) =>
  db
    .selectFrom('devices')
    .leftJoin('agent_builds as b', (join) =>
      join
        .onRef('b.platform', '=', 'devices.os_type')
        .onRef('b.architecture', '=', 'devices.architecture')
        .on(equalsText('b.component', 'agent'))
        .on('b.promoted_at', 'is not', null),
    )
    .leftJoin('agent_rollouts as r', (join) => join.on((eb) => eb('r.is_current', '=', eb.lit(1))))
    .leftJoin('agent_rollout_devices as rd', (join) =>
      join.onRef('rd.rollout_id', '=', 'r.id').onRef('rd.device_id', '=', 'devices.id'),
    )
    .select(['b.version as promoted_version', 'b.promoted_at'])
    .select('b.rollback_at as promoted_rollback_at')
    .select(['r.id as rollout_id', 'r.version as rollout_version'])
    .select(['r.status as rollout_status', 'r.wave as rollout_wave', 'r.soak_minutes as rollout_soak'])
    .select(['rd.wave as rollout_device_wave', 'rd.state as rollout_device_state'])
    .select(['rd.from_version as rollout_device_from', 'rd.is_held as rollout_device_held'])
    .select('rd.settled_at as rollout_device_settled_at')

const byDevice = prepared((db, p: { id: string }) => targetRows(db).where('devices.id', '=', p.id))

export async function findTarget(db: Db, id: string): Promise<AgentTargetColumns | undefined> {
  const [row] = await byDevice(db, { id })
  return row
}

const settingsOfDevice = prepared((db, p: { id: string }) =>
  db
    .selectFrom('devices')
    .innerJoin('organizations as o', 'o.id', 'devices.org_id')
    .select('o.settings')
    .where('devices.id', '=', p.id),
)

/** The settings of the device's organization. */
export async function orgSettingsFor(db: Db, id: string): Promise<Record<string, unknown>> {
  const [row] = await settingsOfDevice(db, { id })
  return JSON.parse(row?.settings ?? '{}') as Record<string, unknown>
}

const buildsForDevice = prepared((db, p: { id: string }) =>
  db
    .selectFrom('devices')
    .innerJoin('agent_builds as b', (join) =>
      join
        .onRef('b.platform', '=', 'devices.os_type')
        .onRef('b.architecture', '=', 'devices.architecture')
        .on(equalsText('b.component', 'agent')),
    )
    .innerJoin('agent_releases as v', 'v.version', 'b.version')
    .select(['v.version', 'v.min_from as minFrom'])
    .where('devices.id', '=', p.id),
)

/** The releases that have an agent build for the platform of the device. */
export const listReleasesFor = (db: Db, id: string): Promise<ReleaseStep[]> => buildsForDevice(db, { id })

export type DeviceUpdate = DeviceUpdateColumns & { status: string; hostname: string }

/** The update of a device, locked until the transaction ends. */
export async function lockUpdate(db: Db, id: string): Promise<DeviceUpdate | undefined> {
  const found = db
    .selectFrom('devices')
    .select(['status', 'hostname', 'update_version', 'update_state', 'update_since', 'update_reason'])
    .where('id', '=', id)
  return forNoKeyUpdate(found).executeTakeFirst()
}

/** Returns the resulting status: a status set by users is not changed by an update. */
export async function saveUpdate(
  db: Db,
  id: string,
  { columns, isOver }: UpdateChange,
  now: Instant,
): Promise<string> {
  const [from, to]: [readonly string[], string] = isOver
    ? [['updating'], 'online']
    : [['online', 'offline', 'pending'], 'updating']
  const saved = await db
    .updateTable('devices')
    .set({ ...columns, updated_at: now })
    .set((eb) => ({ status: eb.case().when('status', 'in', from).then(to).else(eb.ref('status')).end() }))
    .where('id', '=', id)
    .returning('status')
    .executeTakeFirstOrThrow()
  return saved.status
}
