import { Problem } from '../../core/errors.ts'
import type { Page, PageQuery } from '../../core/page.ts'
import type { Instant } from '../../core/time.ts'
import { violatedUniqueKey } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import { forShare, forUpdate } from '../../storage/query/locks.ts'
import { readPage } from '../../storage/query/pages.ts'
import { prepared } from '../../storage/query/prepared.ts'
import type { AgentRolloutRow } from '../../storage/schema/agent-tables.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { Rollout } from './contract.ts'
import { activeStatuses, type RolloutRecord, toRollout } from './rules.ts'

/* Rollouts belong to no tenant: only system scope sees them. */

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

/**
 * Locks the rollout until the transaction ends: no device is offered its version or settled meanwhile. @throws
 * not_found
 */
export async function lockRollout(db: Db, id: string): Promise<RolloutRecord> {
  const row = await forUpdate(all(db).where('id', '=', id)).executeTakeFirst()
  if (!row) throw unknown()
  return toRecord(row)
}

/**
 * Shared lock until the transaction ends: the rollout cannot change while a decision about a device depends on it.
 */
export async function shareLockRollout(db: Db, id: string): Promise<void> {
  await forShare(db.selectFrom('agent_rollouts').select('id').where('id', '=', id)).execute()
}

const current = prepared((db, _: Record<never, string>) =>
  all(db)
    .where((eb) => eb('is_current', '=', eb.lit(1)))
    .where('status', 'in', activeStatuses),
)

/** The rollout that has not ended. */
export async function findActiveRollout(db: Db): Promise<RolloutRecord | undefined> {
  const [row] = await current(db, {})
  return row && toRecord(row)
}

/**
 * Inserts a rollout; a rollout that ended before is no longer current. @throws rollout_in_progress while one has not
 * ended
 */
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
    // Another rollout was started concurrently.
    throw violatedUniqueKey(error) ? new Problem('rollout_in_progress') : error
  }
}

/** Saves a locked rollout. */
export async function saveRollout(db: Db, rollout: RolloutRecord): Promise<void> {
  const { id, ...row } = rowOf(rollout)
  await db.updateTable('agent_rollouts').set(row).where('id', '=', id).execute()
}

/**
 * Claims the assignment of a rollout's devices for this run of the job, or extends the claim; false when another run
 * holds it.
 */
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
