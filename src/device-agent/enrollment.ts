import { z } from 'zod'
import { agents, type Inventory } from '../agents/contract.ts'
import type { Agent } from './agent.ts'
import { bestEffort } from './best-effort.ts'
import type { Description } from './description.ts'
import { TrustKeys } from './replies.ts'
import { isEnrollmentRefused, retryUntilRefused } from './retry.ts'
import type { Identity } from './state.ts'

/** Fields that an older service does not return. */
const Extras = z.object({
  watchdogAuthToken: z.string().min(1).optional().catch(undefined),
  manifestTrustKeys: TrustKeys,
})

/**
 * Enrolls this machine. Every attempt is the same request with the same idempotency key: when only the reply was
 * lost, the next attempt gets it and does not use the enrollment key twice.
 */
export async function enroll(agent: Agent, once: boolean): Promise<Identity> {
  const enrollmentKey = await agent.enrollmentKey()
  const [description, inventory] = await Promise.all([
    agent.machine.describe(),
    agent.machine.readInventory(),
  ])
  const body = { ...enrollmentFields(description, inventory), enrollmentKey, agentVersion: agent.version }
  const client = agent.connect()
  const attempt = () => client.call(agents.enroll, { body })
  const reply = await (once
    ? attempt()
    : retryUntilRefused(agent, 'enrollment', attempt, isEnrollmentRefused))
  const { agentId, deviceId, orgId, siteId, authToken } = reply
  const { watchdogAuthToken, manifestTrustKeys } = Extras.parse(reply)
  const { heartbeatIntervalSeconds } = reply.config
  const identity = { url: client.url, agentId, deviceId, orgId, siteId, authToken, heartbeatIntervalSeconds }
  agent.identity.save({ ...identity, watchdogAuthToken })
  await bestEffort(() => agent.trust.pin(manifestTrustKeys))
  return { ...identity, watchdogAuthToken }
}

function enrollmentFields({ osBuild: _, isHeadless: __, ...description }: Description, inventory: Inventory) {
  return { ...description, hardwareInfo: inventory.hardware, networkInfo: inventory.network }
}
