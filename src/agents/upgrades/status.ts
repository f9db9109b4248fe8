import { recordAudit } from '../../audit/outbox.ts'
import { type AuditEvent, toDraftEntry } from '../../audit/rules.ts'
import type { Instant } from '../../core/time.ts'
import { emitUpdated } from '../../devices/events.ts'
import type { AgentCaller } from '../../handler.ts'
import { redactText } from '../../logs/redaction.ts'
import type { Db } from '../../storage/open.ts'
import { settleDevice } from '../rollouts/devices.ts'
import { lockRollout } from '../rollouts/store.ts'
import { haltIfDue } from '../rollouts/transitions.ts'
import type { UpdateStatus } from './contract.ts'
import { updateFailureReason, updateOnStatus } from './rules.ts'
import { findTarget, lockUpdate, saveUpdate } from './store.ts'

type RequestOrigin = { ip: string; userAgent: string | null; now: Instant }

/**
 * Applies an update status reported by an agent or its watchdog, over HTTP or the live connection: the device is
 * updating, or the update failed and its state in the rollout of that version is settled. A repetition changes
 * nothing.
 */
export async function applyUpdateStatus(
  db: Db,
  { deviceId, orgId }: Pick<AgentCaller, 'deviceId' | 'orgId'>,
  said: UpdateStatus,
  origin: RequestOrigin,
): Promise<void> {
  const { now } = origin
  const status = said.reason === undefined ? said : { ...said, reason: redactText(said.reason) }
  const before = await lockUpdate(db, deviceId)
  const change = before && updateOnStatus(before, status, now)
  if (!change) return
  const moved = await saveUpdate(db, deviceId, change, now)
  if (moved !== before.status) {
    await emitUpdated(db, { id: deviceId, orgId, hostname: before.hostname }, { status: moved }, now)
  }
  if (!change.isOver) return
  await recordFailure(db, { id: deviceId, orgId, hostname: before.hostname }, status, origin)
  await settleFailure(db, deviceId, status, now)
}

async function recordFailure(
  db: Db,
  { id, orgId, hostname }: { id: string; orgId: string; hostname: string },
  { targetVersion, state, reason }: UpdateStatus,
  { ip, userAgent, now }: RequestOrigin,
): Promise<void> {
  const happening: AuditEvent = {
    orgId,
    actorType: 'agent',
    actorId: id,
    actorEmail: null,
    action: 'agent.update.status',
    resourceType: 'device',
    resourceId: id,
    resourceName: hostname,
    details: { targetVersion, state, reason: reason ?? null },
    ipAddress: ip,
    userAgent,
    result: 'failure',
  }
  await recordAudit(db, toDraftEntry(happening, now))
}

async function settleFailure(db: Db, deviceId: string, status: UpdateStatus, now: Instant): Promise<void> {
  const target = await findTarget(db, deviceId)
  if (target?.rollout_version !== status.targetVersion || target.rollout_device_state === null) return
  const rollout = await lockRollout(db, target.rollout_id!)
  if (rollout.status !== 'running' && rollout.status !== 'halted') return
  const ending = { to: 'failed' as const, reason: updateFailureReason(status), now }
  if (await settleDevice(db, rollout.id, deviceId, ['offered', 'soaking', 'updated'], ending)) {
    await haltIfDue(db, rollout, now)
  }
}
