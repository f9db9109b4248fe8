import { ApiError } from '../core/client.ts'
import type { Agent } from './agent.ts'
import { performerOf } from './commands/perform.ts'
import { keepDiagnostics } from './diagnostics.ts'
import { enroll } from './enrollment.ts'
import { keepIdentity } from './keeper.ts'
import { keepListening } from './live/listen.ts'
import { heartbeatOf, keepReporting } from './pulse.ts'
import { startReporter } from './reporter.ts'
import { refusesAgent } from './retry.ts'
import { rotationOf } from './rotation.ts'
import { scheduleLogs } from './shipping.ts'
import type { Identity } from './state.ts'

export type Pace = {
  /** One inventory, one heartbeat and what the machine logged; nothing is tried twice. */
  once?: boolean | undefined
  /** Instead of the interval the service gives. */
  intervalSeconds?: number | undefined
}

/** Enrolls this machine if need be and reports until the signal aborts or the service refuses the agent. */
export async function runAgent(agent: Agent, { once = false, intervalSeconds }: Pace = {}): Promise<void> {
  const diagnostics = keepDiagnostics(agent.spool, agent.clock.now)
  const ended = new AbortController()
  const watched = { ...agent, report: diagnostics.watch(agent.report) }
  try {
    const me = keepIdentity(agent.identity, await identify(watched, once))
    const { deviceId } = me.now()
    const reporter = await startReporter(watched, me)
    const rotation = rotationOf(watched, me)
    const logs = scheduleLogs(watched, reporter)
    const performer = performerOf(watched, deviceId, {
      diagnostics,
      collect: { inventory: reporter.inventory, metrics: () => heartbeat(), logs: logs.sendEvents },
      async tell(commandId, outcome) {
        agent.spool.append({ kind: 'result', commandId, outcome }, { durable: true })
        await logs.sendSpooled()
      },
    })
    const perform = performer.perform
    const heartbeat = heartbeatOf(watched, me, { reporter, rotation, perform })
    if (me.now().staged) await rotation.resume()
    // Beside the heartbeats, which never wait for it; it ends with them.
    const listening = { ...watched, signal: AbortSignal.any([agent.signal, ended.signal]) }
    if (!once) void keepListening(listening, me, { logs: agent.machine.liveLogs, perform })
    if (!once) await keepReporting(watched, me, { heartbeat, reporter, logs }, intervalSeconds)
    await reporter.inventory()
    await heartbeat()
    await logs.sendEvents()
    await performer.settled()
  } catch (error) {
    throw refusesAgent(error) ? farewell(error, agent.identity.file) : error
  } finally {
    ended.abort()
    agent.spool.close()
  }
}

/** The identity of an earlier run or, the first time, of an enrolment. */
async function identify(agent: Agent, once: boolean): Promise<Identity> {
  const known = agent.identity.load()
  const identity = known ?? (await enroll(agent, once))
  const { deviceId, agentId, orgId, siteId } = identity
  const { url } = agent.connect()
  agent.report({ event: known ? 'resumed' : 'enrolled', deviceId, agentId, orgId, siteId, url })
  return identity
}

/** The refusal with what an operator can do about it. */
function farewell({ status, code, message, requestId }: ApiError, file: string): ApiError {
  const advice =
    code === 'device_decommissioned'
      ? 'restore the device, or remove'
      : 'the service no longer accepts this machine; to enroll it again, remove'
  return new ApiError(status, {
    error: `${message}: ${advice} ${file} and start the agent with an enrollment key`,
    code,
    ...(requestId && { requestId }),
  })
}
