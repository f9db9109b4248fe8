import { ApiError } from '../core/client.ts'
import type { Agent } from './agent.ts'
import { keepDiagnostics } from './diagnostics.ts'
import { enroll } from './enrollment.ts'
import { keepListening } from './live/listen.ts'
import { keepReporting } from './pulse.ts'
import { startReporter } from './reporter.ts'
import { refusesAgent } from './retry.ts'
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
  const diagnostics = keepDiagnostics(agent.clock.now)
  const ended = new AbortController()
  const watched = { ...agent, report: diagnostics.watch(agent.report) }
  try {
    const identity = await identify(watched, once)
    const reporter = await startReporter(watched, identity)
    const logs = scheduleLogs(watched, reporter, diagnostics)
    // Beside the heartbeats, which never wait for it; it ends with them.
    const listening = { ...watched, signal: AbortSignal.any([agent.signal, ended.signal]) }
    if (!once) void keepListening(listening, identity, { logs: agent.machine.liveLogs, diagnostics })
    if (!once) await keepReporting(watched, reporter, logs, intervalSeconds)
    await reporter.inventory()
    await reporter.heartbeat()
    await logs.sendEvents()
  } catch (error) {
    throw refusesAgent(error) ? farewell(error, agent.identity.file) : error
  } finally {
    ended.abort()
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
