import { ApiError } from '../core/client.ts'
import type { Agent } from './agent.ts'
import type { Diagnostics } from './diagnostics.ts'
import type { Step } from './events.ts'
import { part } from './part.ts'
import type { Reporter } from './reporter.ts'
import { refusesAgent, reportFailure } from './retry.ts'

const mostEvents = 100
const eventsEvery = 15 * 60_000
/** Every minute: heartbeats, with which they go, come up to a tenth early. */
const diagnosticsEvery = 54_000
const longestPause = 3_600_000

/** Hands in what this machine logged, and what the agent has to say of itself, whenever either is due. */
export function scheduleLogs(agent: Agent, reporter: Reporter, diagnostics: Diagnostics) {
  let position = agent.logPosition.load()

  async function sendEvents(): Promise<void> {
    const read = await part(() => agent.machine.readHostLogs(position, mostEvents), 30_000)
    if (!read) return
    if (read.events.length > 0) await reporter.eventLogs(read.events).catch(unlessRefused)
    position = read.position
    // A full disk is no reason to stop: the position is known until the agent ends.
    await part(() => agent.logPosition.save(position))
  }

  async function sendDiagnostics(): Promise<void> {
    const logs = diagnostics.kept()
    if (logs.length > 0) await reporter.diagnostics(logs).catch(unlessRefused)
    diagnostics.drop(logs)
  }

  const eventsWhenDue = whenDue(agent, 'eventlogs', eventsEvery, sendEvents)
  const diagnosticsWhenDue = whenDue(agent, 'diagnostics', diagnosticsEvery, sendDiagnostics)
  return {
    sendEvents,
    async sendWhenDue(): Promise<void> {
      await eventsWhenDue()
      await diagnosticsWhenDue()
    },
  }
}

/** What the service will never take is not offered for ever. */
function unlessRefused(error: unknown): void {
  if (error instanceof ApiError && (error.status === 400 || error.status === 413)) return
  throw error
}

/** Sends when so much time has passed; after a failure later and later. It never keeps anything else waiting. */
function whenDue(agent: Agent, step: Step, every: number, send: () => Promise<void>): () => Promise<void> {
  let notBefore = Number.NEGATIVE_INFINITY
  let failures = 0
  return async () => {
    const now = agent.clock.now()
    if (now < notBefore) return
    try {
      await send()
      notBefore = now + every
      failures = 0
    } catch (error) {
      failures += 1
      const pause = (): number => Math.min(longestPause, 60_000 * 2 ** (failures - 1))
      notBefore = now + reportFailure(agent, error, refusesAgent, { step, failures, pause })
    }
  }
}
