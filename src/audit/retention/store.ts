import type { Scope } from '../../core/scope.ts'
import { truncateStorable } from '../../core/text.ts'
import { addSeconds, clockSkew, type Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { inScopeHistory } from '../../storage/query/scope.ts'
import type { AuditRetentionRow } from '../../storage/schema/tables.ts'
import {
  defaultPolicy,
  type Hold,
  maxAheadSeconds,
  type RetentionPolicy,
  retryAt,
  runIntervalSeconds,
} from './rules.ts'

const policiesIn = (db: Db, scope: Scope) =>
  db.selectFrom('audit_retention').where(inScopeHistory(scope, 'audit_retention.chain'))

/** The policy of a chain, or the default. */
export async function getPolicy(db: Db, scope: Scope, chain: string): Promise<RetentionPolicy> {
  const row = await policiesIn(db, scope).selectAll().where('chain', '=', chain).executeTakeFirst()
  return row ? toPolicy(row) : defaultPolicy
}

/** The policies of the chains in the scope that have one of their own. */
export async function listPolicies(db: Db, scope: Scope): Promise<Map<string, RetentionPolicy>> {
  const rows = await policiesIn(db, scope).selectAll().execute()
  return new Map(rows.map((row) => [row.chain, toPolicy(row)]))
}

/** Reads the policy to change it: no entry is deleted until the transaction ends. */
export async function lockPolicy(tx: Db, scope: Scope, chain: string): Promise<RetentionPolicy> {
  await ensureRow(tx, chain)
  const locked = forUpdate(policiesIn(tx, scope).selectAll().where('chain', '=', chain))
  return toPolicy(await locked.executeTakeFirstOrThrow())
}

function toPolicy(row: AuditRetentionRow): RetentionPolicy {
  const { hold_reason: reason, hold_by: userId, hold_email: userEmail, held_at: since } = row
  const { error: message, error_at: at, retry_at: next } = row
  return {
    retentionDays: row.retention_days,
    archiveToS3: row.archive_to_s3 === 1,
    lastCleanupAt: row.last_cleanup_at,
    hold: since === null ? null : { reason: reason ?? '', userId, userEmail, since },
    lastError: message === null || at === null ? null : { message, at, retryAt: next },
    failures: row.failures,
  }
}

async function ensureRow(tx: Db, chain: string): Promise<void> {
  const { retentionDays, archiveToS3 } = defaultPolicy
  const row = {
    chain,
    retention_days: retentionDays,
    archive_to_s3: archiveToS3 ? 1 : 0,
    failures: 0,
  }
  await tx
    .insertInto('audit_retention')
    .values({ ...emptyRetentionRow, ...row })
    .onConflict((c) => c.doNothing())
    .execute()
}

/** Row of a chain that was never pruned, held or archived. */
export const emptyRetentionRow = {
  last_cleanup_at: null,
  hold_reason: null,
  hold_by: null,
  hold_email: null,
  held_at: null,
  error: null,
  error_at: null,
  retry_at: null,
  lease: null,
  leased_until: null,
  archiving_to: null,
}

const updatePolicyRow = (tx: Db, scope: Scope, chain: string) =>
  tx
    .updateTable('audit_retention')
    .where('chain', '=', chain)
    .where(inScopeHistory(scope, 'audit_retention.chain'))

type PolicySettings = Pick<RetentionPolicy, 'retentionDays' | 'archiveToS3'>

/** A changed policy is applied at once, also after failures. */
export async function changePolicy(
  tx: Db,
  scope: Scope,
  chain: string,
  { retentionDays, archiveToS3 }: PolicySettings,
): Promise<void> {
  await updatePolicyRow(tx, scope, chain)
    .set({ retention_days: retentionDays, archive_to_s3: archiveToS3 ? 1 : 0, retry_at: null })
    .execute()
}

export async function changeHold(tx: Db, scope: Scope, chain: string, hold: Hold | null): Promise<void> {
  await updatePolicyRow(tx, scope, chain)
    .set({
      hold_reason: hold?.reason ?? null,
      hold_by: hold?.userId ?? null,
      hold_email: hold?.userEmail ?? null,
      held_at: hold?.since ?? null,
    })
    .execute()
}

/** How long the lease of a dead run blocks other runs. */
const leaseSeconds = maxAheadSeconds.lease

/**
 * Latest time that a process can have written, `ahead` of its clock: a later value in the database blocks
 * nothing.
 */
const latestPlausible = (now: Instant, ahead = 0): Instant => addSeconds(now, ahead + clockSkew)

/** Takes the lease of a chain for one run; false when another run has it. */
export async function acquireLease(
  tx: Db,
  chain: string,
  lease: string,
  { now, ifDue = false }: { now: Instant; ifDue?: boolean },
): Promise<boolean> {
  await ensureRow(tx, chain)
  // Locked before it is read: another process may have ended its run a moment ago.
  await forUpdate(tx.selectFrom('audit_retention').select('chain').where('chain', '=', chain)).execute()
  if (ifDue && !(await dueChains(tx, now).where('audit_heads.chain', '=', chain).executeTakeFirst()))
    return false
  const { numUpdatedRows } = await tx
    .updateTable('audit_retention')
    .set({ lease, leased_until: addSeconds(now, leaseSeconds) })
    .where('chain', '=', chain)
    .where((eb) =>
      eb.or([
        eb('leased_until', 'is', null),
        eb('leased_until', '<=', now),
        eb('leased_until', '>', latestPlausible(now, leaseSeconds)),
      ]),
    )
    .executeTakeFirstOrThrow()
  return Number(numUpdatedRows) === 1
}

/** Renews the lease of a run; returns whether the run still held it. */
export async function renewLease(tx: Db, chain: string, lease: string, now: Instant): Promise<boolean> {
  const { numUpdatedRows } = await tx
    .updateTable('audit_retention')
    .set({ leased_until: addSeconds(now, leaseSeconds) })
    .where('chain', '=', chain)
    .where('lease', '=', lease)
    .executeTakeFirstOrThrow()
  return Number(numUpdatedRows) === 1
}

const leasedRow = (tx: Db, chain: string, lease: string) =>
  tx.updateTable('audit_retention').where('chain', '=', chain).where('lease', '=', lease)

const releasedLease = { lease: null, leased_until: null }
const clearedError = { error: null, error_at: null, retry_at: null, failures: 0 }

/** Ends a run. `isComplete`: nothing is left to do, and the next run is in a day. */
export async function finishRun(
  tx: Db,
  chain: string,
  lease: string,
  isComplete: boolean,
  now: Instant,
): Promise<void> {
  await leasedRow(tx, chain, lease)
    .set({ ...releasedLease, ...(isComplete && { ...clearedError, last_cleanup_at: now }) })
    .execute()
}

/** Ends a failed run; the reason is stored until a run succeeds. */
export async function failRun(
  tx: Db,
  chain: string,
  lease: string,
  message: string,
  failures: number,
  now: Instant,
): Promise<void> {
  await leasedRow(tx, chain, lease)
    .set({
      ...releasedLease,
      error: truncateStorable(message, 1000),
      error_at: now,
      failures: failures + 1,
      retry_at: retryAt(failures, now),
    })
    .execute()
}

/** Chains that retention has not run for within a day. */
const dueChains = (db: Db, now: Instant) =>
  db
    .selectFrom('audit_heads')
    .leftJoin('audit_retention', 'audit_retention.chain', 'audit_heads.chain')
    .select('audit_heads.chain')
    .where((eb) =>
      eb.and([
        eb.or([
          eb('last_cleanup_at', 'is', null),
          eb('last_cleanup_at', '<=', addSeconds(now, -runIntervalSeconds)),
          eb('last_cleanup_at', '>', latestPlausible(now)),
        ]),
        eb.or([
          eb('retry_at', 'is', null),
          eb('retry_at', '<=', now),
          eb('retry_at', '>', latestPlausible(now, maxAheadSeconds.retry)),
        ]),
        eb.or([
          eb('leased_until', 'is', null),
          eb('leased_until', '<=', now),
          eb('leased_until', '>', latestPlausible(now, leaseSeconds)),
        ]),
        eb('held_at', 'is', null),
      ]),
    )

/** Due chains, the longest ago first. */
export async function listChainsToPrune(db: Db, now: Instant, limit: number): Promise<string[]> {
  const rows = await dueChains(db, now)
    .orderBy('last_cleanup_at')
    .orderBy('audit_heads.chain')
    .limit(limit)
    .execute()
  return rows.map(({ chain }) => chain)
}

/** Due chains, and when the first of them became due; of those that were never pruned that is not known. */
export async function retentionBacklog(
  db: Db,
  now: Instant,
): Promise<{ count: number; since: Instant | null }> {
  const due = dueChains(db, now).select('last_cleanup_at')
  const { count, last } = await db
    .selectFrom(due.as('due'))
    .select(({ fn }) => [fn.countAll<number>().as('count'), fn.min('last_cleanup_at').as('last')])
    .executeTakeFirstOrThrow()
  return { count, since: last === null ? null : addSeconds(last, runIntervalSeconds) }
}
