import { Problem } from '../../core/errors.ts'
import { truncateStorable } from '../../core/text.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { Device } from '../../devices/contract.ts'
import type { AgentRole } from '../../storage/schema/agent-tables.ts'
import { isSuspended } from '../rules.ts'
import type { DeviceCommandDetail, NewCommand, NewOutcome, Outcome } from './contract.ts'

/** How long a command waits to be fetched, and for its answer before it is given out again: seconds. */
const expirySeconds = 7 * 86_400
export const redeliverySeconds = 120
/** How often it is given out in all. */
export const maxDeliveries = 4
/** Commands of a device that may be under way. */
const maxOpenCommands = 100

type Tenancy = { org_status: string; partner_status: string; isGone: boolean }

/** @throws device_out_of_use, tenant_inactive */
export function checkCommandable({ status }: Device, tenant: Tenancy): void {
  if (status === 'decommissioned') throw new Problem('device_out_of_use')
  if (tenant.isGone || isSuspended(tenant)) throw new Problem('tenant_inactive')
}

/** @throws conflict */
export function checkQueueLimit(open: number): void {
  if (open < maxOpenCommands) return
  throw new Problem('conflict', `${open} commands wait for this device already`)
}

export function makeCommand(
  { type, payload, targetRole }: NewCommand,
  made: { id: string; orgId: string; deviceId: string; by: string; now: Instant },
): DeviceCommandDetail & { orgId: string } {
  return {
    ...{ id: made.id, orgId: made.orgId, deviceId: made.deviceId, type, payload, targetRole },
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

/** What an agent says of a command, as it is kept. */
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

/** That it came to nothing, and why. */
export const failedOutcome = (error: string, status: 'failed' | 'timeout' = 'failed'): Outcome =>
  toOutcome({ status, error })

const maxErrorLength = 100

/** An outcome whose output made room for that of later commands. */
export const dropOutput = ({ error, ...outcome }: Outcome, bytes: number, now: Instant): Outcome => ({
  ...outcome,
  ...{ stdout: null, stderr: null, result: null },
  error: error === null ? null : truncateStorable(error, maxErrorLength),
  dropped: { bytes, at: now },
})

/** As an agent or its watchdog sees one of its commands. */
export type SentCommand = { status: string; target_role: string; sent_count: number }

/**
 * Whether what is said of it still counts: a command ends once.
 * @throws not_found for one that was never given out; command_role_mismatch
 */
export function checkResult(command: SentCommand | undefined, role: AgentRole): 'counts' | 'late' {
  if (!command || command.sent_count === 0) throw new Problem('not_found', 'Command not found')
  if (command.target_role !== role) throw new Problem('command_role_mismatch')
  return command.status === 'completed' || command.status === 'failed' ? 'late' : 'counts'
}

/** What the agent itself says of its updates now, when a command was about that. */
export function acknowledgedAutoUpdate(
  command: { type: string; target_role: string; payload: string },
  { status, result }: Outcome,
): boolean | undefined {
  if (command.type !== 'set_auto_update' || command.target_role !== 'agent' || status !== 'completed') {
    return undefined
  }
  const { enabled } = (result ?? {}) as { enabled?: unknown }
  // What it was told, unless it says otherwise.
  return typeof enabled === 'boolean'
    ? enabled
    : (JSON.parse(command.payload) as { enabled: boolean }).enabled
}
