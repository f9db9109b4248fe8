import type { Instant } from '../../core/time.ts'
import type { AgentCaller } from '../../handler.ts'
import type { ByteQuota } from '../../logs/quota.ts'
import { redactDataInTurns, redactTextInTurns } from '../../logs/redaction.ts'
import type { Db } from '../../storage/open.ts'
import type { NewOutcome, Outcome } from './contract.ts'
import { enforceOutputQuota } from './output-quota.ts'
import { acknowledgedAutoUpdate, checkResult, toOutcome } from './rules.ts'
import * as store from './store.ts'

/** The reported outcome of a command with recognizable secrets redacted; yields to other work meanwhile. */
export async function redactOutcome(said: NewOutcome): Promise<Outcome> {
  const { stdout, stderr, error, result, ...rest } = toOutcome(said)
  const cleaned = async (text: string | null) => text && (await redactTextInTurns(text))
  return {
    ...rest,
    stdout: await cleaned(stdout),
    stderr: await cleaned(stderr),
    error: await cleaned(error),
    ...((await redactDataInTurns({ result })) as { result: unknown }),
  }
}

/**
 * Finishes a command with the outcome its agent reports. Older outputs are dropped to make room for its output.
 * @throws not_found, command_role_mismatch
 */
export async function recordResult(
  db: Db,
  { deviceId, orgId, role }: Pick<AgentCaller, 'deviceId' | 'orgId' | 'role'>,
  { id, outcome }: { id: string; outcome: Outcome },
  quota: ByteQuota,
  now: Instant,
): Promise<'kept' | 'late'> {
  const command = await store.lockCommand(db, { deviceId, id })
  if (checkResult(command, role) === 'late') return 'late'
  const bytes = await store.endCommand(db, id, outcome, now)
  await enforceOutputQuota(db, { deviceId, orgId }, { id, bytes }, quota, now)
  const acknowledged = acknowledgedAutoUpdate(command!, outcome)
  if (acknowledged !== undefined) await store.setAcknowledgedAutoUpdate(db, deviceId, acknowledged)
  return 'kept'
}
