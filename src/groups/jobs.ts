import { Problem } from '../core/errors.ts'
import type { Clock } from '../core/time.ts'
import { isUnsupported } from '../filters/compile.ts'
import { checkCost } from '../filters/rules.ts'
import { drain, writeLeavingLocked } from '../storage/bisect-writes.ts'
import { classifyDatabaseError, isLockTimeout, isPatternTooComplex } from '../storage/database-errors.ts'
import type { Db, Storage } from '../storage/open.ts'
import {
  applyClaimedDiff,
  type ClaimedGroup,
  claimDueGroups,
  type DynamicGroup,
  deferGroup,
  diffMembers,
  hasDueGroup,
  listDueGroups,
  type MembershipDiff,
  recordEvaluation,
  toDynamicGroup,
  unclaimGroups,
} from './dynamic.ts'

const batch = 50
/** Most groups of one partner in a batch, and the time after which its remaining ones wait for the next batch. */
const maxOfPartner = 10
const maxPartnerMs = 5000
/** Devices that one transaction adds or removes. */
const maxMoves = 500

/**
 * Updates dynamic groups whose filter is due; false when none was. Several processes may do so concurrently. Filters
 * are evaluated without blocking writers, and only groups that changed are written.
 */
export async function refreshDueGroups({
  storage,
  clock,
}: {
  storage: Storage
  clock: Clock
}): Promise<boolean> {
  const now = clock()
  if (!(await hasDueGroup(storage.read, now))) return false
  // Claims lost in a power failure are evaluated again.
  const found = await listDueGroups(storage.read, now, { limit: batch, ofPartner: maxOfPartner })
  const { done, refused } = await writeLeavingLocked(
    storage,
    found,
    (tx, some) => claimDueGroups(tx, some, now),
    { unsynced: true },
  )
  const groups = done.flat()
  const failures = refused.map(({ error }) => error)
  // One by one, so that a failure does not block the others. Groups that failed before come last: they may take
  // longest.
  const inOrder = groups.toSorted(
    (a, b) => Number(a.evaluation_error !== null) - Number(b.evaluation_error !== null),
  )
  const spentMs = new Map<string, number>()
  const skipped: string[] = []
  for (const group of inOrder) {
    const spent = spentMs.get(group.partner_id) ?? 0
    // A slow partner must not delay the groups of others: its remaining groups become due again.
    if (spent > maxPartnerMs) {
      skipped.push(group.id)
      continue
    }
    const from = performance.now()
    await refreshClaimed(storage, group, now, clock).catch((error: unknown) => failures.push(error))
    spentMs.set(group.partner_id, spent + performance.now() - from)
  }
  if (skipped.length > 0) await storage.write((tx) => unclaimGroups(tx, skipped, now), { unsynced: true })
  if (failures.length > 0) throw failures[0]
  if (groups.length > 0) return true
  // Other processes have claimed all of these meanwhile; there may be others behind them.
  return found.length > 0 && (await hasDueGroup(storage.read, now))
}

/** @throws the first error, after all other devices were added or removed */
async function refreshClaimed(
  storage: Storage,
  claimed: ClaimedGroup,
  claimedAt: string,
  clock: Clock,
): Promise<void> {
  const group = toDynamicGroup(claimed)
  const difference = await differenceOf(storage, group, claimedAt)
  if ('unknown' in difference)
    return storage.write((tx) => deferGroup(tx, group.id, difference.unknown, claimedAt), { unsynced: true })
  const error = 'fault' in difference ? difference.fault : null
  if (error !== group.evaluationError)
    await storage.write((tx) => recordEvaluation(tx, group.id, error, claimedAt), { unsynced: true })
  if ('fault' in difference) return
  const { missing, surplus } = difference
  const moves = [
    ...missing.map((id) => ({ id, isFound: true })),
    ...surplus.map((id) => ({ id, isFound: false })),
  ]
  const settle = (tx: Db, some: readonly (typeof moves)[number][]) => {
    const part = {
      missing: some.filter(({ isFound }) => isFound).map(({ id }) => id),
      surplus: some.filter(({ isFound }) => !isFound).map(({ id }) => id),
    }
    return applyClaimedDiff(tx, group.id, part, { claimedAt, now: clock() })
  }
  await drain(storage, moves, maxMoves, settle, () => {})
}

/** The difference, or the fault of the filter: it may be older than the limits, or the fleet may have grown since. */
async function differenceOf(
  storage: Storage,
  group: DynamicGroup,
  at: string,
): Promise<MembershipDiff | { fault: string } | { unknown: string }> {
  try {
    checkCost(group.conditions)
    return await diffMembers(storage.readQueries, group, at)
  } catch (error) {
    if (isUnsupported(error)) return { unknown: error.message }
    const fault = faultOf(error)
    if (fault === undefined) throw error
    return { fault }
  }
}

function faultOf(error: unknown): string | undefined {
  if (error instanceof Problem && error.code === 'filter_too_expensive') return error.message
  // Somebody keeps the table locked: that says nothing of the filter.
  if (isLockTimeout(error)) return undefined
  if (isPatternTooComplex(error)) return 'a pattern of the filter is too complex for this database'
  return classifyDatabaseError(error) === 'too slow'
    ? 'the filter takes longer than a query may: simplify it'
    : undefined
}
