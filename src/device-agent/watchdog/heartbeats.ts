import { agentCommands, type NewOutcome } from '../../agents/commands/contract.ts'
import { agents } from '../../agents/contract.ts'
import type { Client } from '../../core/client.ts'
import { safeParse } from '../../core/schema.ts'
import type { Agent } from '../agent.ts'
import { commandRunner } from '../commands/runner.ts'
import { HeartbeatReply } from '../replies.ts'
import { isServiceFailure } from '../retry.ts'
import type { IdentityStore } from '../state.ts'
import type { Offer } from '../update/offer.ts'
import type { Alive } from './messages.ts'

const minute = 60_000
/** Interval while the agent is healthy. */
const calmIntervalMs = 5 * minute

export type WatchdogHeartbeats = {
  /** Records a sign of life of the agent. */
  heard(alive: Alive): void
  /** Sends heartbeats of the watchdog until the signal aborts. */
  run(): Promise<void>
}

/**
 * The watchdog's heartbeats, with a separate token: the service also hears from the machine while the agent cannot be
 * started, and can then repair it.
 */
export function watchdogHeartbeats(
  watchdog: Pick<Agent, 'clock' | 'commands' | 'settings' | 'report' | 'signal' | 'version'> & {
    identity: IdentityStore
    connect: (token: () => string) => Client
    upgrade: (offer: Offer) => void
  },
): WatchdogHeartbeats {
  const { clock, version, signal } = watchdog
  let agentVersion = version
  let heartbeats = 0
  let interval = 60
  let heartbeatAt = clock.now()
  let failures = 0

  /** Milliseconds since the agent's last successful heartbeat, if that is too long. */
  function silence(): number | undefined {
    const ms = clock.now() - heartbeatAt
    return ms > Math.max(5 * minute, 2000 * interval + minute) ? ms : undefined
  }

  async function beat(): Promise<void> {
    const { agentId, deviceId, watchdogAuthToken } = watchdog.identity.load() ?? {}
    if (!agentId || !deviceId || !watchdogAuthToken) return
    const client = watchdog.connect(() => watchdogAuthToken)
    const silent = silence()
    const mainSilentSince = silent === undefined ? null : new Date(Date.now() - silent).toISOString()
    const body = {
      status: silent === undefined ? ('ok' as const) : ('error' as const),
      agentVersion,
      role: 'watchdog' as const,
      watchdogVersion: version,
      mainSilentSince,
    }
    const said = await client.call(agents.heartbeat, { params: { id: agentId }, body })
    const { commands, upgradeTo, rollback } = safeParse(HeartbeatReply, said).data ?? HeartbeatReply.parse({})
    const performer = commandRunner(watchdog, deviceId, {
      reportOutcome: async (id, outcome) => {
        const params = { id: agentId, commandId: id }
        await client.call(agentCommands.result, { params, body: outcome as NewOutcome })
      },
    })
    for (const command of commands) void performer.perform(command)
    if (upgradeTo !== null) watchdog.upgrade({ version: upgradeTo, isRollback: rollback })
  }

  async function beatOrReport(): Promise<void> {
    try {
      await beat()
      failures = 0
    } catch (error) {
      failures += 1
      // The agent reports the same failures of the service and the network.
      if (signal.aborted || isServiceFailure(error)) return
      const { message, code = 'unexpected' } = error as Error & { code?: string }
      const retryInSeconds = (silence() === undefined ? calmIntervalMs : minute) / 1000
      watchdog.report({ event: 'failed', step: 'watchdog', code, message, failures, retryInSeconds })
    }
  }

  return {
    heard(alive) {
      if (alive.heartbeats > heartbeats) heartbeatAt = clock.now()
      heartbeats = alive.heartbeats
      agentVersion = alive.version
      interval = alive.interval
    },
    async run() {
      for (let saidAt = clock.now(); !signal.aborted; ) {
        // An abort ends the pause, and the loop with it.
        await clock.sleep(minute, signal).catch(() => {})
        if (signal.aborted || (silence() === undefined && clock.now() - saidAt < calmIntervalMs)) continue
        saidAt = clock.now()
        await beatOrReport()
      }
    },
  }
}
