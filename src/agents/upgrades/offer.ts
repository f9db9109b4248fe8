import { addSeconds, type Instant } from '../../core/time.ts'
import type { AgentCaller } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import type { AgentTargetColumns } from '../../storage/schema/agent-tables.ts'
import type { AgentDeviceRow } from '../../storage/schema/tables.ts'
import type { Heartbeat } from '../contract.ts'
import { markOffered, markReached, settleDevice } from '../rollouts/devices.ts'
import { lockRollout, shareLockRollout } from '../rollouts/store.ts'
import { haltIfDue } from '../rollouts/transitions.ts'
import { isOlder } from '../versions/semver.ts'
import { nextUpgrade } from '../versions/upgrade-path.ts'
import {
  acceptsUpdates,
  isBackingOff,
  isInOwnWindow,
  isOfferable,
  isUpdateAllowed,
  isWaveOpenFor,
  type StateChange,
  stateChangeOnReport,
  targetVersionOf,
} from './rules.ts'
import { findTarget, listReleasesFor, orgSettingsFor } from './store.ts'

/** How long an agent must be silent before its watchdog is offered a version instead. */
const silentSeconds = 900

/** `isRollback`: the version is older than the running one, and users decided to return to it. */
export type Offer = { version: string; isRollback: boolean }

/**
 * The version to offer in reply to a heartbeat, in its transaction. In the common case the row shows that there is
 * none and that the rollout state does not change: then nothing is read or written.
 */
export async function findOffer(
  db: Db,
  { role }: Pick<AgentCaller, 'role'>,
  device: AgentDeviceRow,
  body: Reported,
  now: Instant,
): Promise<Offer | null> {
  if (role === 'watchdog' && (device.last_seen_at ?? '') > addSeconds(now, -silentSeconds)) return null
  const { reported, settled, wanted } = evaluateReport(role, device, body, now)
  if (!settled && wanted(device) === undefined) return null

  const target = await settleAndFindTarget(db, device, reported, settled, now)
  const goal = target && wanted(target)
  if (!target || goal === undefined || isBackingOff({ ...device, ...target }, goal, now)) return null
  const next = nextUpgrade(await listReleasesFor(db, device.id), reported, goal)
  if (next === undefined || isBackingOff({ ...device, ...target }, next, now)) return null
  if (!isOfferable(next, target, reported)) return null
  if (!isUpdateAllowed(await orgSettingsFor(db, device.id), device, now)) return null
  if (isWaveOpenFor(target) && goal === target.rollout_version && target.rollout_device_state === 'waiting') {
    await markOffered(db, target.rollout_id!, device.id, now)
  }
  return { version: next, isRollback: isOlder(next, reported) }
}

/** Whether the row shows that the agent is offered nothing and its rollout state does not change. */
export function hasNoOffer(device: AgentDeviceRow, body: Reported, now: Instant): boolean {
  const { settled, wanted } = evaluateReport('agent', device, body, now)
  return !settled && wanted(device) === undefined
}

type Reported = Pick<Heartbeat, 'agentVersion' | 'autoUpdate'>

/**
 * Evaluates the version that a heartbeat reports: the state change it causes, and the version that a row makes the
 * device want.
 */
function evaluateReport(role: AgentCaller['role'], device: AgentDeviceRow, body: Reported, now: Instant) {
  // A watchdog does not report the agent's version: use the one the agent reported last.
  const reported = role === 'agent' ? body.agentVersion : device.agent_version
  const acknowledged = body.autoUpdate ?? device.auto_update_acknowledged !== 0
  const isOpen = acceptsUpdates(device, reported, acknowledged)
  const wanted = (row: AgentTargetColumns): string | undefined => {
    const target = isOpen ? targetVersionOf(row, reported) : null
    if (target === null || !isOfferable(target, row, reported)) return undefined
    return isInOwnWindow(device.maintenance_window, now) ? target : undefined
  }
  return {
    reported,
    wanted,
    settled: role === 'agent' ? stateChangeOnReport(device, reported, now) : undefined,
  }
}

/**
 * The target version of the device, after its report has changed its state in the rollout. The rollout is locked
 * until the transaction ends, so that no device is offered a version by an outdated state.
 */
async function settleAndFindTarget(
  db: Db,
  { id, rollout_id }: AgentDeviceRow,
  reported: string,
  seen: StateChange | undefined,
  now: Instant,
): Promise<AgentTargetColumns | undefined> {
  if (rollout_id === null) return findTarget(db, id)
  const rollout = seen?.to === 'failed' ? await lockRollout(db, rollout_id) : undefined
  if (!rollout) await shareLockRollout(db, rollout_id)
  const target = await findTarget(db, id)
  const settled = target && stateChangeOnReport(target, reported, now)
  if (!settled || target.rollout_id !== rollout_id) return target
  if (settled.to !== 'failed') await markReached(db, rollout_id, id, settled.to, now)
  // The first read decided which lock was taken: a failure that only shows now is settled by the next heartbeat.
  else if (rollout && (await settleDevice(db, rollout_id, id, ['soaking', 'updated'], { ...settled, now }))) {
    await haltIfDue(db, rollout, now)
  }
  return findTarget(db, id)
}
