import { agentAuthenticator, recheckAgents } from '../../src/agents/principal.ts'
import { Problem } from '../../src/core/errors.ts'
import type { Clock } from '../../src/core/time.ts'
import { type Closing, closings } from '../../src/live/wire/contract.ts'
import type { Storage } from '../../src/storage/open.ts'
import { bearerToken, rateLimitKey } from '../actor.ts'
import { type clientReader, networkOf } from '../address.ts'
import type { AgentAdmission } from '../gateway.ts'
import { userAgentOf } from '../header-text.ts'
import type { Limiter } from '../limiter.ts'

/** Authenticates agents as on their other routes. The token is accepted only in the header: addresses get into logs. */
export function admission(
  storage: Storage,
  limiter: Limiter,
  clientOf: ReturnType<typeof clientReader>,
  clock: Clock,
): AgentAdmission {
  const findAgent = agentAuthenticator(storage)
  return {
    async admit(request, agentId) {
      const { ip } = clientOf(request.socket.remoteAddress ?? '', request.headers)
      limiter.take('IP', networkOf(ip))
      const token = bearerToken(request)
      const caller = await findAgent(agentId, token, { now: clock() })
      limiter.take('AGENT', rateLimitKey(caller))
      // A device has one connection: the watchdog would replace that of the agent.
      if (caller.role === 'watchdog') throw new Problem('agent_role_required')
      const { deviceId, orgId, partnerId, tokenHash } = caller
      return { agentId, deviceId, orgId, partnerId, tokenHash, ip, userAgent: userAgentOf(request.headers) }
    },
    meter({ agentId, deviceId }, type) {
      limiter.take('AGENT', rateLimitKey({ agentId, role: 'agent' }))
      if (type === 'update_status') limiter.take('AGENT_CHANGES', deviceId)
    },
    // The list may have every connected agent: on SQLite a single query would block the event loop.
    async revise(agents) {
      const verdicts = await recheckAgents(storage.heavy, agents, clock())
      return verdicts.map((verdict): Closing | undefined => verdict && closings[verdict])
    },
  }
}
