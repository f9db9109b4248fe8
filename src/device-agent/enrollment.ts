import { z } from 'zod'
import { agents, type Inventory } from '../agents/contract.ts'
import { devicePublicKey, newDeviceKey } from '../core/device-key.ts'
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
  serviceKey: z.string().min(1).optional().catch(undefined),
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
  const privateKey = newDeviceKey()
  // A header, since a service that is older refuses unknown fields.
  const client = agent.connect(undefined, { 'x-agent-public-key': devicePublicKey(privateKey) })
  const attempt = () => client.call(agents.enroll, { body })
  const reply = await (once
    ? attempt()
    : retryUntilRefused(agent, 'enrollment', attempt, isEnrollmentRefused))
  const { agentId, deviceId, orgId, siteId, authToken } = reply
  const { watchdogAuthToken, manifestTrustKeys, serviceKey: service } = Extras.parse(reply)
  const { heartbeatIntervalSeconds } = reply.config
  const place = { url: client.url, agentId, deviceId, orgId, siteId, heartbeatIntervalSeconds }
  const identity = { ...place, authToken, watchdogAuthToken, proof: { privateKey, service } }
  agent.identity.save(identity)
  await bestEffort(() => agent.trust.pin(manifestTrustKeys))
  return identity
}

function enrollmentFields({ osBuild: _, isHeadless: __, ...description }: Description, inventory: Inventory) {
  return { ...description, hardwareInfo: inventory.hardware, networkInfo: inventory.network }
}
