import { GetEvent, QueryLog } from '../../live/wire/contract.ts'
import { LogNotFound } from '../live/logs.ts'
import type { Fleet, SimulatedAgent } from './fleet.ts'
import { simulatedLogs } from './live-logs.ts'
import { inventoryOf, machineOf } from './machine.ts'
import { sendLogs } from './shipping.ts'

export type CommandResult =
  | { status: 'completed'; result: unknown }
  | { status: 'failed'; error: string; code?: string }

/** The result of a command at a simulated agent. */
export async function runCommand(
  fleet: Fleet,
  agent: SimulatedAgent,
  { type, payload }: { type: string; payload: Record<string, unknown> },
): Promise<CommandResult> {
  const { counts } = fleet.tally
  if (type.startsWith('event_log')) counts.liveQueries += 1
  else counts.commands += 1
  try {
    return { status: 'completed', result: await perform(fleet, agent, type, payload) }
  } catch (error) {
    const { message } = error as Error
    return {
      status: 'failed',
      error: message.slice(0, 1000),
      ...(error instanceof LogNotFound && { code: error.code }),
    }
  }
}

async function perform(
  fleet: Fleet,
  agent: SimulatedAgent,
  type: string,
  payload: Record<string, unknown>,
): Promise<unknown> {
  const { plan, signal } = fleet
  const logs = () => simulatedLogs(plan.seed, agent.n, machineOf(plan, agent.n).osType, Date.now)
  switch (type) {
    case 'event_logs_list':
      return logs().list(signal)
    case 'event_logs_query':
      return logs().query(QueryLog.parse(payload), signal)
    case 'event_log_get': {
      const { logName, recordId } = GetEvent.parse(payload)
      return logs().get(logName, recordId, signal)
    }
    case 'set_log_level':
      return {}
    case 'set_auto_update':
      agent.autoUpdate = payload.enabled === true
      fleet.beatNow(agent)
      return { enabled: agent.autoUpdate }
    case 'collect':
      return collect(fleet, agent, Array.isArray(payload.what) ? payload.what : [])
    default:
      throw new Error(`this agent does not know ${type}`)
  }
}

async function collect(fleet: Fleet, agent: SimulatedAgent, what: readonly unknown[]): Promise<unknown> {
  const { id, token, n } = agent
  if (what.includes('inventory')) {
    await fleet.wire.send('PUT', `/agents/${id}/inventory`, { token, body: inventoryOf(fleet.plan, n) })
  }
  if (what.includes('logs')) await sendLogs(fleet, agent, 1)
  if (what.includes('metrics')) fleet.beatNow(agent)
  return { collected: what }
}
