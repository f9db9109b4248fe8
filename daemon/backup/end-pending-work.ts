import { failedOutcome } from '../../src/agents/commands/rules.ts'
import { recountAll } from '../../src/agents/commands/store.ts'
import { findActiveRollout, lockRollout } from '../../src/agents/rollouts/store.ts'
import { abortRollout, autoHalt } from '../../src/agents/rollouts/transitions.ts'
import { type Instant, secondsBetween } from '../../src/core/time.ts'
import type { Db } from '../../src/storage/open.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'
import { toStoredStatus } from '../../src/webhooks/rules.ts'

/*
 * A restored database says what was true when it was backed up. What the service would act on by itself, and may have acted
 * on since, is ended: nothing is sent twice.
 */

export type EndedWork = {
  webhooksPaused: number
  deliveriesEnded: number
  commandsEnded: number
  rolloutsHalted: number
  /** Versions of agents that machines are no longer offered. */
  promotionsEnded: number
}

export async function endPendingWork(
  tx: Db,
  { reason, gap, now }: { reason: string; gap: number; now: Instant },
): Promise<EndedWork> {
  const paused = await tx
    .updateTable('webhooks')
    .set({ status: toStoredStatus('paused'), status_reason: reason, updated_at: now })
    .where('status', '=', 'active')
    .where('deleted_at', 'is', null)
    .executeTakeFirst()
  const ended = await tx
    .updateTable('webhook_deliveries')
    .set({ status: 'failed', due_at: null, ended_at: now, error_message: `Not sent: ${reason}` })
    .where('ended_at', 'is', null)
    .executeTakeFirst()
  await tx.updateTable('webhook_queues').set({ due_at: null, holder: null }).execute()
  await moveCounters(tx, gap, now)
  await tx.updateTable('audit_retention').set({ lease: null, leased_until: null }).execute()
  return {
    webhooksPaused: Number(paused.numUpdatedRows),
    deliveriesEnded: Number(ended.numUpdatedRows),
    commandsEnded: await endCommands(tx, reason, now),
    rolloutsHalted: await stopRollout(tx, reason, now),
    promotionsEnded: await endPromotions(tx),
  }
}

/**
 * More than any number that the lost time can have used; those that follow stay exact in JSON. It grows with the age of the backup:
 * a second restore of the same one begins beyond the numbers of the first.
 */
export const counterGap = (madeAt: Instant, now: Instant): number =>
  1_000_000 + Math.ceil(secondsBetween(madeAt, now))

/**
 * Numbers that somebody outside may know from the lost time, and that are therefore not given again
 * (docs/decisions/0042-after-a-restore.md).
 */
async function moveCounters(tx: Db, gap: number, now: Instant): Promise<void> {
  await tx
    .updateTable('webhook_queues')
    .set((eb) => ({ last_seq: eb('last_seq', '+', gap) }))
    .execute()
  await tx
    .updateTable('trust_policies')
    .set((eb) => ({ version: eb('version', '+', gap) }))
    .execute()
  await tx
    .updateTable('users')
    .set((eb) => ({
      auth_epoch: eb('auth_epoch', '+', gap),
      mfa_epoch: eb('mfa_epoch', '+', gap),
    }))
    .execute()
  // Nor does a challenge or a code count that was answered in the lost time.
  await tx.updateTable('agent_keys').set({ proved_at: now }).execute()
  const step = Math.floor(Date.parse(now) / 30_000)
  await tx.updateTable('users').set({ totp_step: step }).where('totp_secret', 'is not', null).execute()
}

/** Devices whose bytes are counted anew in one statement. */
const deviceBatch = 500

async function endCommands(tx: Db, reason: string, now: Instant): Promise<number> {
  const open = tx.selectFrom('agent_commands').where('completed_at', 'is', null)
  const count = await countRowsOf(open)
  const devices = await open.select('device_id').distinct().execute()
  const result = JSON.stringify(failedOutcome(`Not sent again: ${reason}`))
  await tx
    .updateTable('agent_commands')
    .set({ status: 'failed', completed_at: now, result })
    .where('completed_at', 'is', null)
    .execute()
  for (let at = 0; at < devices.length; at += deviceBatch) {
    await recountAll(
      tx,
      devices.slice(at, at + deviceBatch).map((one) => one.device_id),
    )
  }
  return count
}

/** One that was withdrawn since, or the goal of a roll-back, would change every machine with its next heartbeat. */
async function endPromotions(tx: Db): Promise<number> {
  await tx.updateTable('agent_rollouts').set({ is_current: 0 }).where('status', '=', 'rolled_back').execute()
  const ended = await tx
    .updateTable('agent_builds')
    .set({ promoted_at: null, rollback_at: null })
    .where('promoted_at', 'is not', null)
    .executeTakeFirst()
  return Number(ended.numUpdatedRows)
}

async function stopRollout(tx: Db, reason: string, now: Instant): Promise<number> {
  await tx.updateTable('agent_rollouts').set({ claimed_by: null, claimed_until: null }).execute()
  const active = await findActiveRollout(tx)
  if (active === undefined || active.status === 'halted') return 0
  const rollout = await lockRollout(tx, active.id)
  // One whose devices are not drawn yet cannot be resumed.
  if (rollout.status === 'preparing') await abortRollout(tx, rollout, reason, now)
  else await autoHalt(tx, rollout, reason, now)
  return 1
}
