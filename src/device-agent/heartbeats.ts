import type { Agent } from './agent.ts'
import { bestEffort } from './best-effort.ts'
import type { DeviceKeyClient } from './device-key-client.ts'
import type { IdentityHolder } from './identity-holder.ts'
import type { HeartbeatReply } from './replies.ts'
import type { Reporter } from './reporter.ts'
import { isAgentRefused, retryUntilRefused } from './retry.ts'
import type { TokenRotator } from './rotation.ts'
import { scheduleTask } from './schedule.ts'

const hour = 3_600_000
const inventoryEvery = 6 * hour
/** Shortest time between inventories when they keep changing. */
const inventoryGap = 300_000

/** Sends a heartbeat and applies its reply. */
export function heartbeatSender(
  agent: Agent,
  identity: IdentityHolder,
  parts: {
    reporter: Reporter
    rotation: TokenRotator
    keys: DeviceKeyClient
    perform: (command: HeartbeatReply['commands'][number]) => void
  },
): () => Promise<void> {
  const { reporter, rotation } = parts

  return async () => {
    const { commands, configUpdate, upgradeTo, ...reply } = await parts.keys.withToken(reporter.heartbeat)
    const asked = configUpdate?.heartbeatIntervalSeconds
    if (asked !== undefined && asked !== identity.current().heartbeatIntervalSeconds) {
      await identity.change({ heartbeatIntervalSeconds: asked })
    }
    const wanted = configUpdate?.autoUpdate
    if (wanted !== undefined && wanted !== agent.settings.load().autoUpdate) {
      await bestEffort(() => agent.settings.setAutoUpdate(wanted))
    }
    await bestEffort(() => agent.trust.pin(reply.manifestTrustKeys))
    for (const command of commands) parts.perform(command)
    if (reply.rotateToken || reply.confirmTokenRotation) await rotation.rotate()
    if (upgradeTo !== null) agent.updater?.consider({ version: upgradeTo, isRollback: reply.rollback })
  }
}

/**
 * Reports until the signal aborts. The heartbeat comes first: a failure to send the inventory or logs must not take
 * the device offline.
 */
export async function reportLoop(
  agent: Agent,
  identity: IdentityHolder,
  parts: {
    heartbeat: () => Promise<void>
    reporter: Reporter
    keys: DeviceKeyClient
    logs: { sendWhenDue(): Promise<void> }
  },
  intervalSeconds?: number,
): Promise<never> {
  const { clock, random, signal } = agent
  const inventory = scheduleInventory(agent, parts.reporter)
  for (;;) {
    await retryUntilRefused(agent, 'heartbeat', parts.heartbeat, isAgentRefused)
    await inventory.sendWhenDue()
    await parts.logs.sendWhenDue()
    await parts.keys.registerWhenDue()
    const interval = 1000 * (intervalSeconds ?? identity.current().heartbeatIntervalSeconds)
    await clock.sleep(interval * (0.9 + 0.2 * random()), signal)
  }
}

function scheduleInventory(agent: Agent, reporter: Reporter) {
  const { clock, machine } = agent
  let signature: string | undefined
  let sentAt = Number.NEGATIVE_INFINITY
  const send = scheduleTask(agent, 'inventory', inventoryGap, reporter.inventory)
  return {
    async sendWhenDue(): Promise<void> {
      const now = clock.now()
      const present = machine.inventorySignature()
      if (present === signature && now - sentAt < inventoryEvery) return
      if (!(await send())) return
      signature = present
      sentAt = now
    },
  }
}
