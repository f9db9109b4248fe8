import { Problem } from '../../core/errors.ts'
import { truncateStorable } from '../../core/text.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { Device } from '../../devices/contract.ts'
import type { AgentRole } from '../../storage/schema/agent-tables.ts'
import { isTenantUsable, type TenantColumns } from '../../tenancy/rules.ts'
import type { DeviceCommandDetail, NewCommand, NewOutcome, Outcome } from './contract.ts'

/** Seconds until a command expires unfetched, and until an unanswered one is sent again. */
const expirySeconds = 7 * 86_400
export const redeliverySeconds = 120
/** Most deliveries of a command. */
export const maxDeliveries = 4
/** Most open commands of a device. */
const maxOpenCommands = 100

/** @throws device_out_of_use, tenant_inactive */
export function checkCommandable({ status }: Device, tenant: TenantColumns): void {
  if (status === 'decommissioned') throw new Problem('device_out_of_use')
  if (!isTenantUsable(tenant)) throw new Problem('tenant_inactive')
}

/** @throws conflict */
export function checkQueueLimit(open: number): void {
  if (open < maxOpenCommands) return
  throw new Problem('conflict', `${open} commands are already pending for this device`)
}

export function makeCommand(
  { type, payload, targetRole }: NewCommand,
  made: { id: string; orgId: string; deviceId: string; by: string; now: Instant },
): DeviceCommandDetail & { orgId: string } {
  return {
    id: made.id,
    orgId: made.orgId,
    deviceId: made.deviceId,
    type,
    payload,
    targetRole,
    status: 'pending',
    createdBy: made.by,
    createdAt: made.now,
    expiresAt: addSeconds(made.now, expirySeconds),
    sentAt: null,
    sentCount: 0,
    completedAt: null,
    result: null,
  }
}

/** The reported outcome of a command, as stored. */
export const toOutcome = (said: NewOutcome): Outcome => ({
  status: said.status,
  exitCode: said.exitCode ?? null,
  stdout: said.stdout ?? null,
  stderr: said.stderr ?? null,
  durationMs: said.durationMs ?? null,
  startedAt: said.startedAt ?? null,
  error: said.error ?? null,
  result: said.result ?? null,
})

/** The outcome of a command that failed without a report. */
export const failedOutcome = (error: string, status: 'failed' | 'timeout' = 'failed'): Outcome =>
  toOutcome({ status, error })

const maxErrorLength = 100

/** An outcome whose output was dropped to make room for later output. */
export const dropOutput = ({ error, ...outcome }: Outcome, bytes: number, now: Instant): Outcome => ({
  ...outcome,
  stdout: null,
  stderr: null,
  result: null,
  error: error === null ? null : truncateStorable(error, maxErrorLength),
  dropped: { bytes, at: now },
})

/** A command as seen by the agent or watchdog it is for. */
export type SentCommand = { status: string; target_role: string; sent_count: number }

/**
 * Whether a report still counts: a command finishes once. @throws not_found for a command that was never sent;
 * command_role_mismatch
 */
export function checkResult(command: SentCommand | undefined, role: AgentRole): 'counts' | 'late' {
  if (!command || command.sent_count === 0) throw new Problem('not_found', 'Command not found')
  if (command.target_role !== role) throw new Problem('command_role_mismatch')
  return command.status === 'completed' || command.status === 'failed' ? 'late' : 'counts'
}

/** The auto-update setting that the agent itself confirms, when the command was about that. */
export function acknowledgedAutoUpdate(
  command: { type: string; target_role: string; payload: string },
  { status, result }: Outcome,
): boolean | undefined {
  if (command.type !== 'set_auto_update' || command.target_role !== 'agent' || status !== 'completed') {
    return undefined
  }
  const { enabled } = (result ?? {}) as { enabled?: unknown }
  // The value of the command, unless the agent reports another one.
  return typeof enabled === 'boolean'
    ? enabled
    : (JSON.parse(command.payload) as { enabled: boolean }).enabled
}
