import type { Logger } from 'pino'
import { SetupError } from '../src/core/errors.ts'
import type { Clock } from '../src/core/time.ts'
import {
  describeClosure,
  gatePollMs,
  type WriteBlock,
  type WriteGate,
} from '../src/storage/copy/write-gate.ts'
import type { Storage } from '../src/storage/open.ts'
import type { AgentAuditBuffer } from './agent-audit-buffer.ts'
import type { AgentEventBuffer } from './agent-event-buffer.ts'

/** @throws SetupError for a database that takes no changes, which a start makes */
export async function assertOpen(gate: WriteGate): Promise<void> {
  await gate.look()
  const { closure } = gate
  if (closure === undefined) return
  throw new SetupError(
    closure.kind === 'moved'
      ? `${describeClosure(closure)}. Start svc with that database. If it is not used, svc db copy --reopen opens this one again.`
      : 'The last part of svc db copy works on this database: start again when it has ended.',
  )
}

type Buffers = { agentEntries: AgentAuditBuffer; agentEvents: AgentEventBuffer; clock: Clock; log: Logger }

/**
 * What waits in memory is written when maintenance begins: the copy gives the services a moment, and what comes too late waits for
 * the end of it.
 */
export const gateListener =
  (storage: Storage, { agentEntries, agentEvents, clock, log }: Buffers) =>
  (closure: WriteBlock | undefined): void => {
    if (closure === undefined) {
      log.info('the database takes writes again')
      return
    }
    log.warn({ closure: closure.kind }, describeClosure(closure))
    if (closure.kind !== 'maintenance') return
    const write = () => {
      const writes = [agentEntries.write(storage, clock()), agentEvents.write(storage, clock())]
      // Both keep what could not be written.
      void Promise.allSettled(writes)
    }
    write()
    // Requests that were under way have gathered more. The copy still waits.
    setTimeout(write, 2 * gatePollMs).unref()
  }
