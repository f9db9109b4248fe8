import { record } from '../../audit/outbox.ts'
import { draftOf } from '../../audit/rules.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { offer } from '../versions/promotion.ts'
import { told } from '../versions/rules.ts'
import { countFailed, listReasons, sumOf } from './places.ts'
import { allowedFailures, type Held, haltReasonOf, reachesAll, waveAfter } from './rules.ts'
import { saveRollout } from './store.ts'

/* What a rollout does by itself. Each is given the rollout as it is held by the transaction. */

/** Says in the audit log what no person did. */
export async function recordMove(
  db: Db,
  { id, version }: Held,
  verb: 'halt' | 'abort' | 'complete',
  details: Record<string, unknown>,
  now: Instant,
): Promise<void> {
  const happening = {
    ...{ orgId: null, actorType: 'system' as const, actorId: null, actorEmail: null },
    ...{ action: `agent.rollout.${verb}`, resourceType: 'agent_rollout', resourceId: id },
    ...{ resourceName: version, details, ipAddress: null, userAgent: null, result: 'success' as const },
  }
  await record(db, draftOf(happening, now))
}

/** How many failures of the open wave nobody has accepted. */
export const unacceptedFailures = async (db: Db, { id, acceptedFailures }: Held): Promise<number> =>
  (await countFailed(db, id)) - acceptedFailures

/** Halts the rollout when more have failed than may; gives it as it is then. */
export async function haltIfDue(db: Db, rollout: Held, now: Instant): Promise<Held> {
  if (rollout.status !== 'running') return rollout
  const failed = await unacceptedFailures(db, rollout)
  if (failed <= allowedFailures(rollout)) return rollout
  const [first] = await listReasons(db, rollout.id, 1)
  return haltItself(db, rollout, haltReasonOf(rollout, failed, first?.reason), now)
}

/** It cannot go on by itself. */
export async function haltItself(db: Db, rollout: Held, reason: string, now: Instant): Promise<Held> {
  const figures = { wave: rollout.wave + 1, devices: rollout.waves[rollout.wave]?.devices ?? 0 }
  await recordMove(db, rollout, 'halt', { reason, ...figures, allowed: allowedFailures(rollout) }, now)
  return halt(db, rollout, reason, now)
}

/** From now on nobody is offered its version. */
export async function halt(db: Db, rollout: Held, reason: string, now: Instant): Promise<Held> {
  const halted: Held = { ...rollout, status: 'halted', haltReason: reason, updatedAt: now }
  await saveRollout(db, halted)
  return halted
}

/** The open wave goes on, and what has failed so far counts no more. */
export async function reopen(db: Db, rollout: Held, now: Instant): Promise<Held> {
  const acceptedFailures = await countFailed(db, rollout.id)
  const times = { waveBeganAt: now, updatedAt: now }
  const opened: Held = { ...rollout, status: 'running', haltReason: null, acceptedFailures, ...times }
  await saveRollout(db, opened)
  return opened
}

/** Opens the wave after the one that is open; undefined when there is none. What has failed before counts no more. */
export async function openNext(db: Db, rollout: Held, now: Instant): Promise<Held | undefined> {
  const wave = waveAfter(rollout, rollout.wave)
  return wave === undefined ? undefined : reopen(db, { ...rollout, wave }, now)
}

/** The current one ends because of what a person did elsewhere, or because it cannot go on. */
export async function endRollout(db: Db, rollout: Held, reason: string, now: Instant): Promise<void> {
  const ended: Held = { ...rollout, status: 'aborted', haltReason: reason, updatedAt: now, endedAt: now }
  await saveRollout(db, ended)
  await recordMove(db, rollout, 'abort', { reason }, now)
}

/** It has come to all of its devices that could be reached: where those are all there are, its version is promoted. */
export async function complete(db: Db, rollout: Held, now: Instant): Promise<Held> {
  const promotes = reachesAll(rollout)
  const times = { updatedAt: now, endedAt: now }
  const ended: Held = { ...rollout, status: 'completed', haltReason: null, isCurrent: !promotes, ...times }
  await saveRollout(db, ended)
  const { promoted, demoted } = promotes
    ? told(await offer(db, { version: rollout.version }, now))
    : { promoted: [], demoted: [] }
  const figures = Object.fromEntries(
    (await sumOf(db, rollout.id)).map(({ state, devices }) => [state, devices]),
  )
  await recordMove(db, rollout, 'complete', { ...figures, promoted, demoted }, now)
  return ended
}
