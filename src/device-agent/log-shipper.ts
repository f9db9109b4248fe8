import { ApiError } from '../core/client.ts'
import type { NewDiagnosticLog } from '../logs/diagnostic/contract.ts'
import type { Agent } from './agent.ts'
import { bestEffort } from './best-effort.ts'
import type { Reporter } from './reporter.ts'
import { scheduleTask } from './schedule.ts'
import type { SpoolRecord } from './spool/records.ts'

const maxEvents = 100
const eventsEvery = 15 * 60_000
/** A minute, less a tenth: heartbeats, which trigger it, come up to a tenth early. */
const spoolEvery = 54_000
/** A backlog is sent over several heartbeats, so that none waits for all of it. */
const maxBatches = 20

/** Sends the machine's logs and the spooled records whenever either is due. */
export function logShipper(agent: Agent, reporter: Reporter) {
  let position = agent.logPosition.load()

  const sendEvents = oneAtATime(async () => {
    const read = await bestEffort(() => agent.machine.readHostLogs(position, maxEvents), 30_000)
    if (!read) return
    if (read.events.length > 0) await reporter.eventLogs(read.events).catch(unlessRefused)
    position = read.position
    // A full disk is no reason to stop: the position lasts until the agent ends.
    await bestEffort(() => agent.logPosition.save(position))
  })

  async function sendSpooled(): Promise<void> {
    for (let batches = 0; batches < maxBatches; batches += 1) {
      const lost = agent.spool.takeLost()
      if (lost > 0) agent.spool.append(lostRecordsLog(lost))
      const batch = agent.spool.next()
      if (!batch) return
      await sendRecords(batch.records)
      batch.done()
    }
  }

  async function sendRecords(records: SpoolRecord[]): Promise<void> {
    const [first] = records
    if (first?.kind === 'result') {
      return reporter.result(first.commandId, first.outcome).catch(unlessSettled)
    }
    if (first?.kind === 'update') return reporter.updateStatus(first.outcome).catch(unlessSettled)
    const logs = records.flatMap((one) => (one.kind === 'diagnostic' ? [one.log] : []))
    await reporter.diagnostics(logs).catch(unlessRefused)
  }

  const eventsWhenDue = scheduleTask(agent, 'eventlogs', eventsEvery, sendEvents)
  const spoolWhenDue = scheduleTask(agent, 'diagnostics', spoolEvery, sendSpooled)
  return {
    sendEvents,
    /** Immediately, except during the pause after a failure. */
    sendSpooled: async (): Promise<void> => void (await spoolWhenDue({ force: true })),
    async sendWhenDue(): Promise<void> {
      await eventsWhenDue()
      await spoolWhenDue({ force: agent.spool.isUrgent() })
    },
  }
}
function lostRecordsLog(lost: number): SpoolRecord {
  const log: NewDiagnosticLog = {
    timestamp: new Date().toISOString(),
    level: 'warn',
    component: 'spool',
    message: `${lost} records were dropped: the service did not accept them for too long`,
    fields: { lost },
  }
  return { kind: 'diagnostic', log }
}

/** Serializes calls: a task that continues from its last position must not run twice concurrently. */
function oneAtATime(task: () => Promise<void>): () => Promise<void> {
  let last = Promise.resolve()
  return () => {
    last = last.then(task, task)
    return last
  }
}

/** Ignores a permanent refusal, so that the data is not sent again for ever. */
function unlessRefused(error: unknown): void {
  if (error instanceof ApiError && (error.status === 400 || error.status === 413)) return
  throw error
}

const settledCodes = new Set(['not_found', 'conflict', 'forbidden', 'command_role_mismatch'])

/** The same for a command or an update that the service no longer knows or has settled. */
function unlessSettled(error: unknown): void {
  if (error instanceof ApiError && settledCodes.has(error.code)) return
  unlessRefused(error)
}
