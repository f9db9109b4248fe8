import { recordAudit } from '../../audit/outbox.ts'
import { toDraftEntry } from '../../audit/rules.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { applyPromotion } from '../versions/promotion.ts'
import { promotionSummary } from '../versions/rules.ts'
import { countByState, countFailed, listFailureReasons } from './devices.ts'
import { allowedFailures, coversAllDevices, haltReasonOf, nextWave, type RolloutRecord } from './rules.ts'
import { saveRollout } from './store.ts'

/* Transitions that a rollout makes automatically. The caller holds the lock on the rollout. */

/** Audits a transition that no user made. */
async function auditTransition(
  db: Db,
  { id, version }: RolloutRecord,
  verb: 'halt' | 'abort' | 'complete',
  details: Record<string, unknown>,
  now: Instant,
): Promise<void> {
  const happening = {
    orgId: null,
    actorType: 'system' as const,
    actorId: null,
    actorEmail: null,
    action: `agent.rollout.${verb}`,
    resourceType: 'agent_rollout',
    resourceId: id,
    resourceName: version,
    details,
    ipAddress: null,
    userAgent: null,
    result: 'success' as const,
  }
  await recordAudit(db, toDraftEntry(happening, now))
}

/** Failures that nobody has accepted. */
const countUnacceptedFailures = async (db: Db, { id, acceptedFailures }: RolloutRecord): Promise<number> =>
  (await countFailed(db, id)) - acceptedFailures

/** Halts the rollout when more devices failed than allowed; returns its new state. */
export async function haltIfDue(db: Db, rollout: RolloutRecord, now: Instant): Promise<RolloutRecord> {
  if (rollout.status !== 'running') return rollout
  const failed = await countUnacceptedFailures(db, rollout)
  if (failed <= allowedFailures(rollout)) return rollout
  const [first] = await listFailureReasons(db, rollout.id, 1)
  return autoHalt(db, rollout, haltReasonOf(rollout, failed, first?.reason), now)
}

/** Halts a rollout automatically. */
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

/** Stops offering the version. */
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

/** Starts or resumes the open wave; failures so far no longer count. */
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

/** Opens the next wave; undefined when there is none. Earlier failures no longer count. */
export async function openNextWave(
  db: Db,
  rollout: RolloutRecord,
  now: Instant,
): Promise<RolloutRecord | undefined> {
  const wave = nextWave(rollout, rollout.wave)
  return wave === undefined ? undefined : startWave(db, { ...rollout, wave }, now)
}

/** Aborts the rollout automatically: because of a user's action elsewhere, or because it cannot continue. */
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

/** Completes a rollout after its last wave: if it covered all devices, its version is promoted. */
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
