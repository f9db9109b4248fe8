import { addSeconds, type Instant } from '../../core/time.ts'
import { parseWeeklyWindow, type WeeklyWindow } from '../../core/weekly-window.ts'
import { isOpenAt } from '../../devices/windows/rules.ts'
import type { AgentTargetColumns, DeviceUpdateColumns } from '../../storage/schema/agent-tables.ts'
import type { AgentDeviceRow } from '../../storage/schema/tables.ts'
import { isSuspended } from '../rules.ts'
import { isRollbackTarget } from '../versions/rules.ts'
import { isDevBuild, isNewer, isOlder } from '../versions/semver.ts'
import type { FailureState, UpdateStatus } from './contract.ts'

/** How long a version that failed on a device is not offered to it again. */
const backoffSeconds = 3600

/**
 * Rollouts whose devices stay on the version they reached. A promotion ends that: the rollout is then no longer the
 * current one.
 */
const holdingStatuses: readonly string[] = ['running', 'halted', 'aborted', 'completed']

/**
 * The version a device should run: the one of the current rollout if its wave reached the device, else the promoted
 * one; null for any. While a rollout is being prepared its devices are unknown, and nothing is offered.
 */
export function targetVersionOf(row: AgentTargetColumns, reported: string): string | null {
  const { promoted_version: promoted, rollout_status: status, rollout_version: version } = row
  if (status === 'preparing') return null
  if (row.rollout_device_state === null || version === null || status === null) return promoted
  const isReached = row.rollout_device_state !== 'waiting' && reported === version
  if (isReached) return holdingStatuses.includes(status) ? version : (promoted ?? row.rollout_device_from)
  if (isWaveOpenFor(row)) return version
  return row.rollout_device_held === 1 && reported === row.rollout_device_from ? reported : promoted
}

/** Whether a version may be offered to a device. An older one is offered only after an explicit roll-back. */
export const isOfferable = (version: string, row: AgentTargetColumns, reported: string): boolean =>
  isNewer(version, reported) ||
  (isOlder(version, reported) && (isRolloutReverted(row, reported) || isPromotedRollback(row, version)))

/** Whether the promoted version is the target of a roll-back. */
const isPromotedRollback = (row: AgentTargetColumns, version: string): boolean =>
  version === row.promoted_version &&
  isRollbackTarget({ promoted_at: row.promoted_at, rollback_at: row.promoted_rollback_at })

/** Whether the rollout that brought the device to its version was rolled back. */
const isRolloutReverted = (row: AgentTargetColumns, reported: string): boolean =>
  row.rollout_status === 'rolled_back' &&
  row.rollout_device_state !== null &&
  row.rollout_device_state !== 'waiting' &&
  reported === row.rollout_version

/** Whether the rollout offers the version to the device now: its wave is open, and the device is not settled. */
export const isWaveOpenFor = (row: AgentTargetColumns): boolean =>
  row.rollout_status === 'running' &&
  row.rollout_device_wave! <= row.rollout_wave! &&
  (row.rollout_device_state === 'waiting' || row.rollout_device_state === 'offered')

export type StateChange = { to: 'soaking' | 'updated'; reason: null } | { to: 'failed'; reason: string }

/**
 * The state change that a reported version causes in the current rollout; undefined: none. A device counts as updated
 * when it still reports the version after the soak time: the absence of a failure would prove nothing about a dead
 * one.
 */
export function stateChangeOnReport(
  row: AgentTargetColumns,
  reported: string,
  now: Instant,
): StateChange | undefined {
  const {
    rollout_version: version,
    rollout_status: status,
    rollout_device_state: state,
    rollout_soak: soak,
  } = row
  if (state === null || status === null || !holdingStatuses.includes(status)) return undefined
  if (reported === version) {
    if (state === 'waiting' || state === 'offered') {
      return { to: soak === 0 ? 'updated' : 'soaking', reason: null }
    }
    const isOver = state === 'soaking' && addSeconds(row.rollout_device_settled_at!, soak! * 60) <= now
    return isOver ? { to: 'updated', reason: null } : undefined
  }
  const isOnIt = state === 'soaking' || state === 'updated'
  if (!isOnIt || status === 'aborted' || status === 'completed') return undefined
  return { to: 'failed', reason: `Reports ${reported} after it was updated` }
}

type UpdateEligibility = Pick<AgentDeviceRow, 'status' | 'auto_update' | 'org_status' | 'partner_status'>

/**
 * Whether a device may be offered versions at all. `acknowledged` is the agent's setting: users and the agent can
 * each refuse.
 */
export const acceptsUpdates = (device: UpdateEligibility, reported: string, acknowledged: boolean): boolean =>
  device.auto_update === 1 &&
  acknowledged &&
  device.status !== 'maintenance' &&
  !isDevBuild(reported) &&
  !isSuspended(device)

const failures: readonly string[] = ['failed', 'refused', 'rolled_back'] satisfies FailureState[]

/** Whether a version failed on the device within the backoff time, and was not promoted since. */
export function isBackingOff(
  row: Pick<AgentTargetColumns, 'promoted_version' | 'promoted_at'> & DeviceUpdateColumns,
  version: string,
  now: Instant,
): boolean {
  const { update_version, update_state, update_since: since } = row
  if (update_version !== version || update_state === null || since === null) return false
  if (!failures.includes(update_state) || since <= addSeconds(now, -backoffSeconds)) return false
  return !(row.promoted_version === version && row.promoted_at !== null && row.promoted_at > since)
}

/** Whether the window of a device itself, as stored, allows updates to begin now. */
export const isInOwnWindow = (own: string | null, now: Instant): boolean =>
  own === null || isOpenAt(JSON.parse(own) as WeeklyWindow, now)

/** Whether the settings of an organization allow updates now; the window of the device itself replaces that of them. */
export function isUpdateAllowed(
  settings: Record<string, unknown>,
  { maintenance_window: own }: Pick<AgentDeviceRow, 'maintenance_window'>,
  now: Instant,
): boolean {
  if (isManualPolicy(settings)) return false
  if (own !== null) return isInOwnWindow(own, now)
  const window = windowOf(settings)
  return window === null || isOpenAt(window, now)
}

/** The window that an organization sets; null: none. */
export function windowOf(settings: Record<string, unknown>): WeeklyWindow | null {
  const { maintenanceWindow: said } = defaultsOf(settings)
  if (said == null) return null
  return (typeof said === 'string' && parseWeeklyWindow(said)) || neverOpen
}

/**
 * In place of an invalid setting, stored before settings were validated: an intended restriction must not permit
 * everything.
 */
const neverOpen: WeeklyWindow = { every: '', durationMinutes: 0, timezone: 'UTC' }

/** Whether an organization never allows updates to be offered. */
export function isManualPolicy(settings: Record<string, unknown>): boolean {
  const { agentUpdatePolicy: policy } = defaultsOf(settings)
  return policy != null && policy !== 'auto' && policy !== 'staged'
}

const defaultsOf = ({ defaults }: Record<string, unknown>): Record<string, unknown> =>
  defaults !== null && typeof defaults === 'object' ? (defaults as Record<string, unknown>) : {}

/** New values of a device's update columns, and whether the update is over. */
export type UpdateChange = { columns: DeviceUpdateColumns; isOver: boolean }

const noUpdate: DeviceUpdateColumns = {
  update_version: null,
  update_state: null,
  update_since: null,
  update_reason: null,
}

/** The effect of a reported version on the update of a device; the version from before the update has none. */
export function updateOnReport(
  row: Pick<AgentDeviceRow, 'agent_version'> & DeviceUpdateColumns,
  reported: string,
  now: Instant,
): UpdateChange | undefined {
  if (row.update_state === null) return undefined
  if (reported === row.update_version) return { columns: noUpdate, isOver: true }
  if (row.update_state !== 'updating' || reported === row.agent_version) return undefined
  const columns: DeviceUpdateColumns = {
    update_version: row.update_version,
    update_state: 'failed',
    update_since: now,
    update_reason: `Reports ${reported} instead`,
  }
  return { columns, isOver: true }
}

/**
 * The effect of a reported status; undefined for a repeated one: otherwise repetition would postpone the time limit
 * for ever.
 */
export function updateOnStatus(
  row: DeviceUpdateColumns,
  { targetVersion, state, reason }: UpdateStatus,
  now: Instant,
): UpdateChange | undefined {
  if (row.update_version === targetVersion && row.update_state === state) return undefined
  const columns: DeviceUpdateColumns = {
    update_version: targetVersion,
    update_state: state,
    update_since: now,
    update_reason: reason ?? null,
  }
  return { columns, isOver: state !== 'updating' }
}

/** The failure reported by an agent, as the reason in a rollout. */
export function updateFailureReason({ state, reason }: UpdateStatus): string {
  const what = { failed: 'Failed', refused: 'Refused', rolled_back: 'Rolled back', updating: '' }[state]
  return reason === undefined || reason === '' ? what : `${what}: ${reason}`
}
