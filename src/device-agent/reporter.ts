import { agentCommands, type NewOutcome } from '../agents/commands/contract.ts'
import { agents } from '../agents/contract.ts'
import { agentUpdates } from '../agents/upgrades/contract.ts'
import { safeParse } from '../core/schema.ts'
import { diagnosticLogs, type NewDiagnosticLog } from '../logs/diagnostic/contract.ts'
import { eventLogs, type NewEventLog } from '../logs/events/contract.ts'
import type { Agent } from './agent.ts'
import type { IdentityHolder } from './identity-holder.ts'
import { HeartbeatReply } from './replies.ts'
import type { CommandOutcome, UpdateOutcome } from './spool/records.ts'

/** Client of the routes by which an agent reports. */
export async function startReporter(agent: Agent, identity: IdentityHolder) {
  const { machine, report } = agent
  const { agentId, deviceId } = identity.current()
  const client = agent.connect(() => identity.current().authToken)
  const params = { id: agentId }
  let description = await machine.describe()

  return {
    async heartbeat(): Promise<HeartbeatReply> {
      const [metrics, activity] = await Promise.all([machine.readMetrics(), machine.readActivity()])
      const said = await client.call(agents.heartbeat, {
        params,
        body: {
          status: 'ok',
          role: 'agent',
          agentVersion: agent.version,
          autoUpdate: agent.updater?.takesUpdates(),
          metrics,
          ...description,
          ...activity,
        },
      })
      report({ event: 'heartbeat', deviceId, metrics })
      return safeParse(HeartbeatReply, said).data ?? HeartbeatReply.parse({})
    },

    async inventory(): Promise<void> {
      description = await machine.describe()
      const inventory = await machine.readInventory()
      await client.call(agents.inventory, { params, body: inventory })
      const { disks = [], network = [], software = [] } = inventory
      report({
        event: 'inventory',
        deviceId,
        disks: disks.length,
        network: network.length,
        software: software.length,
      })
    },

    async eventLogs(events: NewEventLog[]): Promise<void> {
      const { count } = await client.call(eventLogs.submit, { params, body: { events } })
      report({ event: 'eventlogs', deviceId, sent: events.length, new: count })
    },

    async diagnostics(logs: NewDiagnosticLog[]): Promise<void> {
      await client.call(diagnosticLogs.submit, { params, body: { logs } })
      report({ event: 'diagnostics', deviceId, sent: logs.length })
    },

    async result(commandId: string, outcome: CommandOutcome): Promise<void> {
      await client.call(agentCommands.result, {
        params: { ...params, commandId },
        body: outcome as NewOutcome,
      })
    },

    async updateStatus(body: UpdateOutcome): Promise<void> {
      await client.call(agentUpdates.status, { params, body })
    },
  }
}
export type Reporter = Awaited<ReturnType<typeof startReporter>>
