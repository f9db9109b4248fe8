import { findAgentCaller, reviseAgents } from '../../src/agents/principal.ts'
import { agentTokenHash } from '../../src/agents/rules.ts'
import { type Closing, closings } from '../../src/live/wire/contract.ts'
import type { Storage } from '../../src/storage/open.ts'
import { bearer } from '../actor.ts'
import { type clientReader, networkOf } from '../address.ts'
import type { Admission } from '../gateway.ts'
import type { Limiter } from '../limiter.ts'

/** Lets agents in as on their other routes; the token counts in the header alone, an address gets into logs. */
export function admission(
  storage: Storage,
  limiter: Limiter,
  clientOf: ReturnType<typeof clientReader>,
): Admission {
  return {
    async admit(request, agentId) {
      const { ip } = clientOf(request.socket.remoteAddress ?? '', request.headers)
      limiter.take('IP', networkOf(ip))
      const token = bearer(request)
      const { deviceId, orgId } = await findAgentCaller(storage.read, agentId, token)
      limiter.take('AGENT', agentId)
      return { agentId, deviceId, orgId, tokenHash: agentTokenHash(token) }
    },
    // As many as are connected: on SQLite the event loop would wait for that.
    async revise(agents) {
      const verdicts = await reviseAgents(storage.heavy, agents)
      return verdicts.map((verdict): Closing | undefined => verdict && closings[verdict])
    },
  }
}
