import type { Agent } from './agent.ts'
import type { Reporter } from './reporter.ts'
import { keepTrying, refusesAgent, reportFailure } from './retry.ts'

const hour = 3_600_000
const inventoryEvery = 6 * hour
/** An inventory that keeps changing is sent this often and no more. */
const inventoryGap = 300_000

/**
 * Reports until the signal aborts. The heartbeat goes first: whatever keeps the inventory or the logs
 * from arriving must not take the device offline.
 */
export async function keepReporting(
  agent: Agent,
  reporter: Reporter,
  logs: { sendWhenDue(): Promise<void> },
  intervalSeconds?: number,
): Promise<never> {
  const { clock, random, signal } = agent
  const inventory = scheduleInventory(agent, reporter)
  for (;;) {
    await keepTrying(agent, 'heartbeat', reporter.heartbeat, refusesAgent)
    await inventory.sendWhenDue()
    await logs.sendWhenDue()
    const interval = 1000 * (intervalSeconds ?? reporter.heartbeatIntervalSeconds)
    await clock.sleep(interval * (0.9 + 0.2 * random()), signal)
  }
}

function scheduleInventory(agent: Agent, reporter: Reporter) {
  const { clock, machine } = agent
  let signature: string | undefined
  let sentAt = Number.NEGATIVE_INFINITY
  let notBefore = Number.NEGATIVE_INFINITY
  let failures = 0

  return {
    async sendWhenDue(): Promise<void> {
      const now = clock.now()
      const present = machine.inventorySignature()
      if (now < notBefore || (present === signature && now - sentAt < inventoryEvery)) return
      try {
        await reporter.inventory()
        signature = present
        sentAt = now
        notBefore = now + inventoryGap
        failures = 0
      } catch (error) {
        failures += 1
        const pause = (): number => Math.min(hour, 60_000 * 2 ** (failures - 1))
        notBefore = now + reportFailure(agent, error, refusesAgent, { step: 'inventory', failures, pause })
      }
    },
  }
}
