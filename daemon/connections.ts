import { agentSocket } from '../src/agents/socket.ts'
import { applyUpdateStatus } from '../src/agents/upgrades/status.ts'
import { ReplicaRelay } from '../src/live/replica-relay.ts'
import { clientReader } from './address.ts'
import type { Config } from './config.ts'
import type { Dependencies } from './dependencies.ts'
import { admission } from './gateway/admission.ts'
import { gateway } from './gateway.ts'

/** The connections of agents to this process, and access to those connected to other processes. */
export function connectionsOf(
  on: Pick<Dependencies, 'storage' | 'limiter' | 'bodies' | 'clock' | 'log' | 'commandQuota' | 'agentWatch'>,
  config: Config,
): Pick<Dependencies, 'agents' | 'switchboard' | 'nudge'> {
  const { storage, limiter, bodies, clock, log } = on
  const { trustKeys } = config.outside.releases
  const socket = agentSocket({
    ...on,
    trustKeys,
    onUpdateStatus: applyUpdateStatus,
    onHeartbeat: () => on.agentWatch.heartbeat('websocket'),
  })
  const agents = gateway(
    admission(storage, limiter, clientReader(config.proxies), clock),
    socket,
    log,
    bodies,
  )
  storage.onCommit(agents.revise)
  const { links } = agents
  const { signals } = storage
  // With several processes on one database, an agent may be connected to another process.
  if (!signals) return { agents, switchboard: links, nudge: async (_, deviceId) => links.nudge(deviceId) }
  const relay = new ReplicaRelay({ storage, signals, local: links, clock }, (err) =>
    log.error({ err }, 'a request to agents of other processes failed'),
  )
  agents.presence = relay
  return { agents, switchboard: relay, nudge: (tx, deviceId) => relay.nudge(tx, deviceId) }
}
