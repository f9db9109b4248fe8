import { z } from 'zod'
import { type Command, SetLogLevel } from '../../live/wire/contract.ts'
import type { Agent } from '../agent.ts'
import type { DiagnosticsRecorder } from '../diagnostics.ts'
import type { CommandOutcome } from '../spool/records.ts'

const SetAutoUpdate = z.object({ enabled: z.boolean() })
const Collect = z.object({ what: z.array(z.enum(['inventory', 'metrics', 'logs'])).min(1) })

export type CommandHandlers = {
  /** The watchdog has none. */
  diagnostics?: Pick<DiagnosticsRecorder, 'setLevel'>
  /** Reports that kind of data now. */
  collect?: Record<z.output<typeof Collect>['what'][number], () => Promise<unknown>>
  /** Reports the outcome of a command to the service. */
  reportOutcome: (id: string, outcome: CommandOutcome) => Promise<void>
}

export type CommandContext = Pick<Agent, 'commands' | 'settings' | 'clock' | 'report'>

/** Whether the service stores the command until it is done, unlike a live query that a user waits for. */
export const isDurable = ({ type }: Pick<Command, 'type'>): boolean => !type.startsWith('event_log')

/** Executes each command once, and reports its outcome each time it is sent. */
export function commandRunner(agent: CommandContext, deviceId: string, able: CommandHandlers) {
  const inFlight = new Map<string, Promise<CommandOutcome>>()
  const pendingReports = new Set<Promise<void>>()

  async function outcomeOf(command: Command): Promise<CommandOutcome> {
    const known = agent.commands.find(command.id)
    if (known) return known.outcome ?? { status: 'failed', error: 'the agent ended while it did this' }
    agent.commands.begin(command.id)
    const startedAt = new Date().toISOString()
    const began = agent.clock.now()
    const ended = await attempt(command)
    const durationMs = Math.round(agent.clock.now() - began)
    const outcome = { ...ended, startedAt, durationMs }
    agent.commands.end(command.id, outcome)
    const { id, type } = command
    agent.report({ event: 'command', deviceId, id, type, status: outcome.status })
    return outcome
  }

  async function attempt({ type, payload }: Command): Promise<CommandOutcome> {
    try {
      return { status: 'completed', result: await perform(type, payload) }
    } catch (error) {
      const message = error instanceof z.ZodError ? z.prettifyError(error) : (error as Error).message
      return { status: 'failed', error: message.slice(0, 1000) }
    }
  }

  async function perform(type: string, payload: unknown): Promise<unknown> {
    switch (type) {
      case 'set_auto_update': {
        const { enabled } = SetAutoUpdate.parse(payload)
        agent.settings.setAutoUpdate(enabled)
        return { enabled }
      }
      case 'set_log_level': {
        if (!able.diagnostics) break
        const { level, durationMinutes } = SetLogLevel.parse(payload)
        able.diagnostics.setLevel(level, durationMinutes * 60_000)
        return {}
      }
      case 'collect': {
        if (!able.collect) break
        const { what } = Collect.parse(payload)
        for (const one of new Set(what)) await able.collect[one]()
        return { collected: [...new Set(what)] }
      }
    }
    throw new Error(`this agent does not know ${type}`)
  }

  return {
    /** Never fails: a failed command is an outcome as well. Resolves before the service has received the outcome. */
    perform(command: Command): Promise<CommandOutcome> {
      const begun = inFlight.get(command.id)
      if (begun) return begun
      const outcome = outcomeOf(command)
      inFlight.set(command.id, outcome)
      // A refusal of the agent is noticed at the next heartbeat.
      const reported = outcome.then((ended) => able.reportOutcome(command.id, ended)).catch(() => {})
      pendingReports.add(reported)
      void reported.finally(() => {
        inFlight.delete(command.id)
        pendingReports.delete(reported)
      })
      return outcome
    },
    /** Resolves when every outcome was reported, or could not be. */
    settled: async (): Promise<void> => void (await Promise.allSettled(pendingReports)),
  }
}
export type CommandRunner = ReturnType<typeof commandRunner>
