import { recordAudit } from '../audit/outbox.ts'
import { toDraftEntry } from '../audit/rules.ts'
import { Problem } from '../core/errors.ts'
import type { Clock } from '../core/time.ts'
import type { CommandResult, UpdateFrame } from '../live/wire/contract.ts'
import type { ByteQuota } from '../logs/quota.ts'
import type { Db, Storage } from '../storage/open.ts'
import { NewOutcome } from './commands/contract.ts'
import { recordResult, redactOutcome } from './commands/results.ts'
import type { AgentCommand } from './contract.ts'
import { commandsFor, type RequestOrigin, recordSeen } from './heartbeats.ts'
import { findAgent } from './store.ts'
import type { TrustKey } from './versions/manifest.ts'

/** A connected agent, with the facts from its authentication. */
export type ConnectedAgent = {
  agentId: string
  deviceId: string
  orgId: string
  partnerId: string
  ip: string
  userAgent: string | null
}

export type SocketDependencies = {
  storage: Storage
  clock: Clock
  trustKeys: readonly TrustKey[]
  commandQuota: ByteQuota
  /** Called for each sign of life. */
  onHeartbeat?(): void
  /** Saves an update status that an agent reports. */
  onUpdateStatus(
    tx: Db,
    agent: ConnectedAgent,
    said: Omit<UpdateFrame, 'type'>,
    origin: RequestOrigin,
  ): Promise<void>
}

/** Handles the frames of an agent, like the HTTP routes of the same names. */
export function agentSocket({
  storage,
  clock,
  trustKeys,
  commandQuota,
  onUpdateStatus,
  onHeartbeat,
}: SocketDependencies) {
  const originOf = ({ ip, userAgent }: ConnectedAgent): RequestOrigin => ({ ip, userAgent, now: clock() })

  /** Returns nothing for a device that other routes refuse: its connection is about to be closed. */
  function claimFor(agent: ConnectedAgent, isAlive: boolean): Promise<AgentCommand[]> {
    const origin = originOf(agent)
    const work = async (tx: Db) => {
      const device = await findAgent(tx, agent.agentId)
      if (!device || device.status === 'decommissioned' || device.status === 'quarantined') return []
      if (isAlive) await recordSeen(tx, device, origin)
      return commandsFor(tx, { device, deviceId: device.id, role: 'agent' }, origin.now)
    }
    return storage.write(work, { unsynced: true })
  }

  return {
    /** Records a sign of life; returns the pending commands, marked as sent. */
    async heartbeat(
      agent: ConnectedAgent,
    ): Promise<{ commands: AgentCommand[]; manifestTrustKeys: TrustKey[] }> {
      onHeartbeat?.()
      return { commands: await claimFor(agent, true), manifestTrustKeys: [...trustKeys] }
    },

    /** The pending commands, marked as sent. */
    waiting: (agent: ConnectedAgent): Promise<AgentCommand[]> => claimFor(agent, false),

    /**
     * Records the outcome of a command; `foreign` when the device has no sent command of that id. @throws
     * command_role_mismatch
     */
    async result(agent: ConnectedAgent, said: CommandResult): Promise<'kept' | 'late' | 'foreign'> {
      const { commandId: id } = said
      const outcome = await redactOutcome(NewOutcome.parse(said))
      const origin = originOf(agent)
      try {
        return await storage.write(async (tx) => {
          const by = { ...agent, role: 'agent' as const }
          const kept = await recordResult(tx, by, { id, outcome }, commandQuota, origin.now)
          if (kept === 'kept')
            await recordAudit(tx, toDraftEntry(answered(agent, id, outcome, origin), origin.now))
          return kept
        })
      } catch (error) {
        if (error instanceof Problem && error.code === 'not_found') return 'foreign'
        throw error
      }
    },

    async updateStatus(agent: ConnectedAgent, { type: _, ...said }: UpdateFrame): Promise<void> {
      await storage.write((tx) => onUpdateStatus(tx, agent, said, originOf(agent)))
    },
  }
}

export type AgentSocket = ReturnType<typeof agentSocket>

const answered = (
  { deviceId, orgId }: ConnectedAgent,
  commandId: string,
  { status, exitCode }: { status: string; exitCode: number | null },
  { ip, userAgent }: RequestOrigin,
) => ({
  orgId,
  actorType: 'agent' as const,
  actorId: deviceId,
  actorEmail: null,
  action: 'agent.command.result',
  resourceType: 'device',
  resourceId: deviceId,
  resourceName: null,
  details: { commandId, after: { status, exitCode } },
  ipAddress: ip,
  userAgent,
  result: 'success' as const,
})
