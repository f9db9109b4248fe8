import type { Generated } from 'kysely'

/** The program that speaks for a machine: the agent, or the watchdog that looks after the agent. */
export type AgentRole = 'agent' | 'watchdog'

/**
 * State of a token in its rotation. `lapsed`: handed out and not confirmed in time. `previous`: replaced, but valid
 * for some more minutes.
 */
export type TokenStanding = 'current' | 'pending' | 'lapsed' | 'previous'

/** Columns of a device's row about its agent (see `DeviceRow`). */
export type DeviceAgentColumns = {
  watchdog_token_hash: string | null
  /** null: issued at enrollment. */
  token_issued_at: string | null
  watchdog_seen_at: string | null
  watchdog_version: string | null
  /** Since when the watchdog reports the agent itself as silent. */
  main_silent_since: string | null
  /** Whether users allow the agent to update itself. */
  auto_update: Generated<number>
  /** The value that the agent last reported; null before it did. */
  auto_update_acknowledged: number | null
  possible_replacement_of: string | null
} & DeviceUpdateColumns

/** The update of a device that is under way, or the last one that failed. */
export type DeviceUpdateColumns = {
  update_version: string | null
  /** updating, or how it failed: failed, refused or rolled_back. */
  update_state: string | null
  update_since: string | null
  update_reason: string | null
}

/** What decides which version a device is to run; read with the row of its agent. */
export type AgentTargetColumns = {
  /** The version promoted for machines of its kind. */
  promoted_version: string | null
  promoted_at: string | null
  /** As in the row of its build. */
  promoted_rollback_at: string | null
  /** The current rollout, whether or not the device takes part in it. */
  rollout_id: string | null
  rollout_version: string | null
  rollout_status: string | null
  rollout_wave: number | null
  rollout_soak: number | null
  /** The device's part in the rollout; all null without one. */
  rollout_device_wave: number | null
  rollout_device_state: string | null
  rollout_device_from: string | null
  rollout_device_held: number | null
  rollout_device_settled_at: string | null
}

/** The tokens of a device while they are replaced: the new ones, and until when the old ones are valid. */
export type AgentRotationRow = {
  device_id: string
  pending_token_hash: string | null
  pending_watchdog_hash: string | null
  pending_until: string | null
  previous_token_hash: string | null
  previous_watchdog_hash: string | null
  previous_until: string | null
}

/** The public key of a device. */
export type AgentKeyRow = {
  device_id: string
  /** Ed25519: 32 bytes in base64. */
  public_key: string
  created_at: string
  /** When the last challenge that the device answered was issued; none up to then counts again. */
  proved_at: string | null
}

export type AgentCommandRow = {
  id: string
  org_id: string
  device_id: string
  type: string
  /** JSON. */
  payload: string
  /** agent or watchdog. */
  target_role: string
  /** pending, sent, completed or failed. */
  status: string
  sent_count: number
  created_by: string | null
  created_at: string
  expires_at: string
  sent_at: string | null
  completed_at: string | null
  /** JSON. */
  result: string | null
}

/** A version of agents as its signed manifest describes it. Belongs to no tenant. */
export type AgentReleaseRow = {
  version: string
  tag: string
  prerelease: number
  notes: string | null
  /** The oldest version that may update to this one directly. */
  min_from: string | null
  /** The exact bytes that were signed. */
  manifest: string
  manifest_signature: string
  signing_key_id: string
  created_at: string
  updated_at: string
}

/** One file of a release. */
export type AgentBuildRow = {
  version: string
  component: string
  /** As in `devices.os_type`. */
  platform: string
  /** As in `devices.architecture`. */
  architecture: string
  /** The file's name: svc-agent-linux-amd64. */
  name: string
  url: string
  checksum: string
  size: number
  /** Not null: machines of this kind are offered this build. */
  promoted_at: string | null
  /** Equal to `promoted_at` while machines with a newer version are offered it as well; a later promotion ends that. */
  rollback_at: string | null
}

export type AgentRolloutRow = {
  id: string
  version: string
  /** preparing, running, halted, completed, aborted or rolled_back. */
  status: string
  /** JSON list. */
  waves: string
  /** The wave that is open, from 0. */
  wave: number
  wave_began_at: string | null
  gate_minutes: number
  soak_minutes: number
  max_failure_percent: number
  /** Number of failures when the wave began, or when a user continued in spite of them. */
  accepted_failures: number
  halt_reason: string | null
  /** The run of the job that draws its devices, and until when no other run may. */
  claimed_by: string | null
  claimed_until: string | null
  created_by: string | null
  created_at: string
  updated_at: string
  ended_at: string | null
  /** 1 for the rollout that decides what its devices are offered; 0 after a later promotion. */
  is_current: number
}

export type AgentRolloutDeviceRow = {
  rollout_id: string
  device_id: string
  org_id: string
  wave: number
  /** waiting, offered, soaking, updated, failed or withdrawn. */
  state: string
  /** The version that the device reported when it was drawn. */
  from_version: string
  /** 1: an earlier rollout brought it to `from_version`, where it stays until its turn. */
  is_held: number
  offered_at: string | null
  settled_at: string | null
  reason: string | null
}
