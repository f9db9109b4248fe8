import { Problem } from '../../core/errors.ts'
import type { Page, PageQuery } from '../../core/page.ts'
import type { Instant } from '../../core/time.ts'
import { forShare, forUpdate, isUniqueViolation, prepared } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import { readPage } from '../../storage/query/pages.ts'
import type { AgentRolloutRow } from '../../storage/schema/agent-tables.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { Rollout } from './contract.ts'
import { activeStatuses, type RolloutRecord, toRollout } from './rules.ts'

/* Rollouts are of no tenant: only whoever runs the service sees them. */

type PublicRow = Omit<AgentRolloutRow, 'claimed_by' | 'claimed_until'>

const rows = rowsOf<PublicRow>()({ json: ['waves'], flags: ['is_current'] })

const columns = [
  'id',
  'version',
  'status',
  'waves',
  'wave',
  'wave_began_at',
  'gate_minutes',
  'soak_minutes',
  'max_failure_percent',
  'accepted_failures',
  'halt_reason',
  'created_by',
  'created_at',
  'updated_at',
  'ended_at',
  'is_current',
] as const satisfies readonly (keyof PublicRow)[]

const toRecord = (row: PublicRow): RolloutRecord => rows.read(row) as unknown as RolloutRecord

const rowOf = (rollout: RolloutRecord) => ({
  ...rows.write(rollout as unknown as Parameters<typeof rows.write>[0]),
  id: rollout.id,
})

const all = (db: Db) => db.selectFrom('agent_rollouts').select(columns)

/** Newest first. */
export async function listRollouts(db: Db, query: PageQuery): Promise<Page<Rollout>> {
  const found = db.selectFrom('agent_rollouts')
  const newestFirst = (q: typeof found) =>
    q.select(columns).orderBy('created_at', 'desc').orderBy('id', 'desc')
  return readPage(found, query, newestFirst, (row) => toRollout(toRecord(row)))
}

const unknown = () => new Problem('not_found', 'Rollout not found')

/** @throws not_found */
export async function getRollout(db: Db, id: string): Promise<RolloutRecord> {
  const row = await all(db).where('id', '=', id).executeTakeFirst()
  if (!row) throw unknown()
  return toRecord(row)
}

/** Held until the transaction ends: no device is offered its version meanwhile, and none settled. @throws not_found */
export async function lockRollout(db: Db, id: string): Promise<RolloutRecord> {
  const row = await forUpdate(all(db).where('id', '=', id)).executeTakeFirst()
  if (!row) throw unknown()
  return toRecord(row)
}

/** Kept as it is until the transaction ends, by any number at once: what it decides for a device stays true. */
export async function shareLockRollout(db: Db, id: string): Promise<void> {
  await forShare(db.selectFrom('agent_rollouts').select('id').where('id', '=', id)).execute()
}

const current = prepared((db, _: Record<never, string>) =>
  all(db)
    .where((eb) => eb('is_current', '=', eb.lit(1)))
    .where('status', 'in', activeStatuses),
)

/** The one that has not come to its end. */
export async function findActiveRollout(db: Db): Promise<RolloutRecord | undefined> {
  const [row] = await current(db, {})
  return row && toRecord(row)
}

/** The hold of the one before ends with it. @throws rollout_in_progress while that one has not come to its end */
export async function insertRollout(db: Db, rollout: RolloutRecord): Promise<void> {
  if (await findActiveRollout(db)) throw new Problem('rollout_in_progress')
  await db
    .updateTable('agent_rollouts')
    .set({ is_current: 0 })
    .where((eb) => eb('is_current', '=', eb.lit(1)))
    .where('status', 'not in', activeStatuses)
    .execute()
  try {
    await db.insertInto('agent_rollouts').values(rowOf(rollout)).execute()
  } catch (error) {
    // Another one began since this one looked.
    throw isUniqueViolation(error) ? new Problem('rollout_in_progress') : error
  }
}

/** Writes a rollout that is held. */
export async function saveRollout(db: Db, rollout: RolloutRecord): Promise<void> {
  const { id, ...row } = rowOf(rollout)
  await db.updateTable('agent_rollouts').set(row).where('id', '=', id).execute()
}

/** Whether the devices of a rollout are now drawn by this run of the job, or still are. */
export async function claimRollout(
  db: Db,
  id: string,
  { by, now, until }: { by: string; now: Instant; until: Instant },
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('agent_rollouts')
    .set({ claimed_by: by, claimed_until: until })
    .where('id', '=', id)
    .where('status', '=', 'preparing')
    .where(({ or, eb }) =>
      or([eb('claimed_by', '=', by), eb('claimed_until', 'is', null), eb('claimed_until', '<=', now)]),
    )
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}
