import type { Selectable, Updateable } from 'kysely'
import { SetupError } from '../../src/core/errors.ts'
import { addSeconds, type Instant } from '../../src/core/time.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import { hasTable } from '../../src/storage/migration-ledger.ts'
import { type Db, openStorage, type Storage } from '../../src/storage/open.ts'
import { forUpdate } from '../../src/storage/query/locks.ts'
import type { BackupRunRow } from '../../src/storage/schema/tables.ts'
import { nextAfter } from './settings.ts'

/* When backups and restore drills ran, and which process does the scheduled one. */

export type RunKind = BackupRunRow['kind']
export type Run = Selectable<BackupRunRow>

/** A holder that has not said for so long that it lives is dead: another process does the run again. */
export const claimSeconds = 90

/** Archives that are remembered; retention keeps at most 1000. */
const maxBackups = 2000

export const findRun = (db: Db, kind: RunKind): Promise<Run | undefined> =>
  db.selectFrom('backup_runs').selectAll().where('kind', '=', kind).executeTakeFirst()

/** When the next scheduled run is due. The first process that looks starts the schedule. */
function dueAt(schedule: string, { due_after }: Pick<Run, 'due_after'>): Instant | undefined {
  return due_after === null ? undefined : nextAfter(schedule, new Date(due_after))?.toISOString()
}

/** When at the latest a run should have succeeded: that after the last success, or after the schedule was begun. */
export function nextRunDeadline(schedule: string, run: Run | undefined): Instant | undefined {
  const since = run?.succeeded_at ?? run?.due_after
  return since ? nextAfter(schedule, new Date(since))?.toISOString() : undefined
}

/** Takes the run that is due, if no other process has it. */
export async function claimRun(
  storage: Storage,
  { kind, schedule, holder, now }: { kind: RunKind; schedule: string; holder: string; now: Instant },
): Promise<boolean> {
  const seen = await findRun(storage.read, kind)
  if (seen?.due_after && !isDue(seen, schedule, now)) return false
  return storage.write(async (tx) => {
    await insertRun(tx, kind)
    const run = await forUpdate(
      tx.selectFrom('backup_runs').selectAll().where('kind', '=', kind),
    ).executeTakeFirstOrThrow()
    if (run.due_after === null) await updateRun(tx, kind, { due_after: now })
    if (!isDue(run, schedule, now)) return false
    // A run that was missed, as nothing ran, is made up for once.
    const due_after = run.due_after! > now ? run.due_after : now
    await updateRun(tx, kind, { due_after, holder, held_until: addSeconds(now, claimSeconds) })
    return true
  })
}

/** Also when its holder is dead. */
function isDue(run: Run, schedule: string, now: Instant): boolean {
  if (run.holder !== null) return (run.held_until ?? '') <= now
  const due = dueAt(schedule, run)
  return due !== undefined && due <= now
}

const updateRun = (tx: Db, kind: RunKind, change: Updateable<BackupRunRow>) =>
  tx.updateTable('backup_runs').set(change).where('kind', '=', kind).execute()

/** False when another process has taken the run. */
export async function renewClaim(
  storage: Storage,
  { kind, holder, until }: { kind: RunKind; holder: string; until: Instant },
): Promise<boolean> {
  const { numUpdatedRows } = await storage.write((tx) =>
    tx
      .updateTable('backup_runs')
      .set({ held_until: until })
      .where('kind', '=', kind)
      .where('holder', '=', holder)
      .executeTakeFirst(),
  )
  return numUpdatedRows > 0n
}

/** The run has ended. */
export const releaseClaim = (storage: Storage, kind: RunKind, holder: string): Promise<unknown> =>
  storage.write((tx) =>
    tx
      .updateTable('backup_runs')
      .set({ holder: null, held_until: null })
      .where('kind', '=', kind)
      .where('holder', '=', holder)
      .execute(),
  )

const insertRun = (tx: Db, kind: RunKind) =>
  tx
    .insertInto('backup_runs')
    .values({ kind })
    .onConflict((c) => c.doNothing())
    .execute()

export async function recordSuccess(
  tx: Db,
  kind: RunKind,
  { at, durationMs, bytes }: { at: Instant; durationMs: number; bytes: number },
): Promise<void> {
  await insertRun(tx, kind)
  await updateRun(tx, kind, { succeeded_at: at, duration_ms: Math.round(durationMs), bytes })
}

/** Longest text of a failure. */
const maxText = 1000

export async function recordFailure(
  tx: Db,
  kind: RunKind,
  { at, reason }: { at: Instant; reason: string },
): Promise<void> {
  await insertRun(tx, kind)
  await tx
    .updateTable('backup_runs')
    .set((eb) => ({
      failed_at: at,
      failure: reason.slice(0, maxText),
      failures: eb('failures', '+', 1),
    }))
    .where('kind', '=', kind)
    .execute()
}

/** Opens the database beside the service, for a few rows. @throws SetupError for an older schema */
export async function withRunsDatabase<T>(
  place: DatabaseLocation,
  work: (storage: Storage) => Promise<T>,
): Promise<T> {
  const storage = await openStorage({ ...place, postgres: { poolSize: 2 } })
  try {
    if (!(await hasTable(storage, 'backup_runs'))) {
      throw new SetupError(
        'The database does not record this: it has an older schema, which svc db migrate mends',
      )
    }
    return await work(storage)
  } finally {
    await storage.close()
  }
}

/** A backup counts however it was started. */
export const recordBackup = (
  at: DatabaseLocation,
  { place, madeAt, bytes, durationMs }: { place: string; madeAt: Instant; bytes: number; durationMs: number },
): Promise<void> =>
  withRunsDatabase(at, (storage) =>
    storage.write(async (tx) => {
      const row = { place, made_at: madeAt, bytes }
      await tx
        .insertInto('backups')
        .values(row)
        .onConflict((c) => c.column('place').doUpdateSet(row))
        .execute()
      const old = tx
        .selectFrom('backups')
        .select('place')
        .orderBy('made_at', 'desc')
        .orderBy('place')
        .limit(1000)
        .offset(maxBackups)
      const gone = (await old.execute()).map((one) => one.place)
      if (gone.length > 0) await tx.deleteFrom('backups').where('place', 'in', gone).execute()
      await recordSuccess(tx, 'backup', { at: madeAt, durationMs, bytes })
    }),
  )
