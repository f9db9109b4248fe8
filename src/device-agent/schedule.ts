import type { Agent } from './agent.ts'
import type { Step } from './events.ts'
import { isAgentRefused, reportFailure } from './retry.ts'

const maxPauseMs = 3_600_000

/**
 * Runs a task when `every` has passed since its last success, or immediately with `force`; after failures at growing
 * intervals. It never blocks anything else, and never runs twice concurrently.
 */
export function scheduleTask(agent: Agent, step: Step, every: number, task: () => Promise<void>) {
  let notBefore = Number.NEGATIVE_INFINITY
  let blockedUntil = Number.NEGATIVE_INFINITY
  let failures = 0
  let inFlight: Promise<boolean> | undefined

  async function attempt(): Promise<boolean> {
    const now = agent.clock.now()
    try {
      await task()
      notBefore = now + every
      failures = 0
      return true
    } catch (error) {
      failures += 1
      const pause = (): number => Math.min(maxPauseMs, 60_000 * 2 ** (failures - 1))
      blockedUntil = now + reportFailure(agent, error, isAgentRefused, { step, failures, pause })
      return false
    }
  }

  /** Returns whether the task was done now. */
  return async ({ force = false } = {}): Promise<boolean> => {
    // Whoever started that attempt gets its error.
    while (inFlight) await inFlight.catch(() => {})
    const now = agent.clock.now()
    if (now < blockedUntil || (now < notBefore && !force)) return false
    inFlight = attempt().finally(() => {
      inFlight = undefined
    })
    return await inFlight
  }
}
