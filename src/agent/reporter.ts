import { agents } from '../agents/contract.ts'
import { diagnosticLogs, type NewDiagnosticLog } from '../logs/diagnostic/contract.ts'
import { eventLogs, type NewEventLog } from '../logs/events/contract.ts'
import type { Agent } from './agent.ts'
import type { Identity } from './state.ts'

/** Tells the service about this machine. */
export async function startReporter(agent: Agent, enrolled: Identity) {
  const { machine, report } = agent
  const client = agent.connect(enrolled.authToken)
  const params = { id: enrolled.agentId }
  const { deviceId } = enrolled
  let identity = enrolled
  let description = await machine.describe()

  return {
    get heartbeatIntervalSeconds(): number {
      return identity.heartbeatIntervalSeconds
    },

    async heartbeat(): Promise<void> {
      const [metrics, activity] = await Promise.all([machine.readMetrics(), machine.readActivity()])
      const { configUpdate } = await client.call(agents.heartbeat, {
        params,
        body: { status: 'ok', agentVersion: agent.version, metrics, ...description, ...activity },
      })
      const asked = configUpdate?.heartbeatIntervalSeconds
      if (isInterval(asked) && asked !== identity.heartbeatIntervalSeconds) {
        identity = { ...identity, heartbeatIntervalSeconds: asked }
        agent.identity.save(identity)
      }
      report({ event: 'heartbeat', deviceId, metrics })
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
  }
}
export type Reporter = Awaited<ReturnType<typeof startReporter>>

const isInterval = (value: unknown): value is number =>
  typeof value === 'number' && Number.isFinite(value) && value >= 1 && value <= 86_400
