import { recordAudit } from '../../audit/outbox.ts'
import { toDraftEntry } from '../../audit/rules.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { applyPromotion } from '../versions/promotion.ts'
import { promotionSummary } from '../versions/rules.ts'
import { countByState, countFailed, listFailureReasons } from './devices.ts'
import { allowedFailures, coversAllDevices, haltReasonOf, nextWave, type RolloutRecord } from './rules.ts'
import { saveRollout } from './store.ts'

/* What a rollout does by itself. Each is given the rollout as it is held by the transaction. */

/** Says in the audit log what no person did. */
async function auditTransition(
  db: Db,
  { id, version }: RolloutRecord,
  verb: 'halt' | 'abort' | 'complete',
  details: Record<string, unknown>,
  now: Instant,
): Promise<void> {
  const happening = {
    ...{ orgId: null, actorType: 'system' as const, actorId: null, actorEmail: null },
    ...{ action: `agent.rollout.${verb}`, resourceType: 'agent_rollout', resourceId: id },
    ...{ resourceName: version, details, ipAddress: null, userAgent: null, result: 'success' as const },
  }
  await recordAudit(db, toDraftEntry(happening, now))
}

/** How many failures of the open wave nobody has accepted. */
const countUnacceptedFailures = async (db: Db, { id, acceptedFailures }: RolloutRecord): Promise<number> =>
  (await countFailed(db, id)) - acceptedFailures

/** Halts the rollout when more have failed than may; gives it as it is then. */
export async function haltIfDue(db: Db, rollout: RolloutRecord, now: Instant): Promise<RolloutRecord> {
  if (rollout.status !== 'running') return rollout
  const failed = await countUnacceptedFailures(db, rollout)
  if (failed <= allowedFailures(rollout)) return rollout
  const [first] = await listFailureReasons(db, rollout.id, 1)
  return autoHalt(db, rollout, haltReasonOf(rollout, failed, first?.reason), now)
}

/** It cannot go on by itself. */
export async function autoHalt(
  db: Db,
  rollout: RolloutRecord,
  reason: string,
  now: Instant,
): Promise<RolloutRecord> {
  const figures = { wave: rollout.wave + 1, devices: rollout.waves[rollout.wave]?.devices ?? 0 }
  await auditTransition(db, rollout, 'halt', { reason, ...figures, allowed: allowedFailures(rollout) }, now)
  return haltRollout(db, rollout, reason, now)
}

/** From now on nobody is offered its version. */
export async function haltRollout(
  db: Db,
  rollout: RolloutRecord,
  reason: string,
  now: Instant,
): Promise<RolloutRecord> {
  const halted: RolloutRecord = { ...rollout, status: 'halted', haltReason: reason, updatedAt: now }
  await saveRollout(db, halted)
  return halted
}

/** The open wave goes on, and what has failed so far counts no more. */
export async function startWave(db: Db, rollout: RolloutRecord, now: Instant): Promise<RolloutRecord> {
  const acceptedFailures = await countFailed(db, rollout.id)
  const times = { waveBeganAt: now, updatedAt: now }
  const opened: RolloutRecord = {
    ...rollout,
    status: 'running',
    haltReason: null,
    acceptedFailures,
    ...times,
  }
  await saveRollout(db, opened)
  return opened
}

/** Opens the wave after the one that is open; undefined when there is none. What has failed before counts no more. */
export async function openNextWave(
  db: Db,
  rollout: RolloutRecord,
  now: Instant,
): Promise<RolloutRecord | undefined> {
  const wave = nextWave(rollout, rollout.wave)
  return wave === undefined ? undefined : startWave(db, { ...rollout, wave }, now)
}

/** The current one ends because of what a person did elsewhere, or because it cannot go on. */
export async function abortRollout(
  db: Db,
  rollout: RolloutRecord,
  reason: string,
  now: Instant,
): Promise<void> {
  const ended: RolloutRecord = {
    ...rollout,
    status: 'aborted',
    haltReason: reason,
    updatedAt: now,
    endedAt: now,
  }
  await saveRollout(db, ended)
  await auditTransition(db, rollout, 'abort', { reason }, now)
}

/** It has come to all of its devices that could be reached: where those are all there are, its version is promoted. */
export async function completeRollout(db: Db, rollout: RolloutRecord, now: Instant): Promise<RolloutRecord> {
  const promotes = coversAllDevices(rollout)
  const times = { updatedAt: now, endedAt: now }
  const ended: RolloutRecord = {
    ...rollout,
    status: 'completed',
    haltReason: null,
    isCurrent: !promotes,
    ...times,
  }
  await saveRollout(db, ended)
  const { promoted, demoted } = promotes
    ? promotionSummary(await applyPromotion(db, { version: rollout.version }, now))
    : { promoted: [], demoted: [] }
  const figures = Object.fromEntries(
    (await countByState(db, rollout.id)).map(({ state, devices }) => [state, devices]),
  )
  await auditTransition(db, rollout, 'complete', { ...figures, promoted, demoted }, now)
  return ended
}
