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
  isOfferable,
  isUpdateAllowed,
  isWaveOpenFor,
  type StateChange,
  stateChangeOnReport,
  targetVersionOf,
} from './rules.ts'
import { findTarget, listReleasesFor, orgSettingsFor } from './store.ts'

/** How long an agent has to be silent before its watchdog is offered a version in its stead. */
const silentSeconds = 900

/** `isRollback`: it is older than what runs, and people have decided that it is gone back to. */
export type Offer = { version: string; isRollback: boolean }

/**
 * The version that a heartbeat is offered, in its transaction. Its row tells already when there is none, and that the device
 * stands in a rollout as before: then nothing is asked and nothing written.
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
  if (!isUpdateAllowed(await orgSettingsFor(db, device.id), now)) return null
  if (isWaveOpenFor(target) && goal === target.rollout_version && target.place_state === 'waiting') {
    await markOffered(db, target.rollout_id!, device.id, now)
  }
  return { version: next, isRollback: isOlder(next, reported) }
}

/** Whether its row tells that an agent is offered nothing, and stands in a rollout as before. */
export function hasNoOffer(device: AgentDeviceRow, body: Reported, now: Instant): boolean {
  const { settled, wanted } = evaluateReport('agent', device, body, now)
  return !settled && wanted(device) === undefined
}

type Reported = Pick<Heartbeat, 'agentVersion' | 'autoUpdate'>

/** What a heartbeat says of versions: which one runs, what that settles, and which one a row makes it want. */
function evaluateReport(role: AgentCaller['role'], device: AgentDeviceRow, body: Reported, now: Instant) {
  // The watchdog says nothing of the agent: that is what it last said itself.
  const reported = role === 'agent' ? body.agentVersion : device.agent_version
  const acknowledged = body.autoUpdate ?? device.auto_update_acknowledged !== 0
  const isOpen = acceptsUpdates(device, reported, acknowledged)
  const wanted = (row: AgentTargetColumns): string | undefined => {
    const target = isOpen ? targetVersionOf(row, reported) : null
    return target !== null && isOfferable(target, row, reported) ? target : undefined
  }
  return {
    reported,
    wanted,
    settled: role === 'agent' ? stateChangeOnReport(device, reported, now) : undefined,
  }
}

/**
 * What the device is to run, after what it reports has settled its place in the rollout. Until the transaction ends the
 * rollout stays as it is, so that nobody is offered its version by what it was a moment before.
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
  // What it was at first sight decides who may write: a failure that only shows now is settled by the next heartbeat.
  else if (rollout && (await settleDevice(db, rollout_id, id, ['soaking', 'updated'], { ...settled, now }))) {
    await haltIfDue(db, rollout, now)
  }
  return findTarget(db, id)
}
