import { ApiError } from '../core/client.ts'
import type { Agent } from './agent.ts'
import { enroll } from './enrollment.ts'
import { keepReporting } from './pulse.ts'
import { startReporter } from './reporter.ts'
import { refusesAgent } from './retry.ts'
import type { Identity } from './state.ts'

export type Pace = {
  /** One inventory and one heartbeat, nothing tried twice. */
  once?: boolean | undefined
  /** Instead of the interval the service gives. */
  intervalSeconds?: number | undefined
}

/** Enrolls this machine if need be and reports until the signal aborts or the service refuses the agent. */
export async function runAgent(agent: Agent, { once = false, intervalSeconds }: Pace = {}): Promise<void> {
  try {
    const reporter = await startReporter(agent, await identify(agent, once))
    if (!once) await keepReporting(agent, reporter, intervalSeconds)
    await reporter.inventory()
    await reporter.heartbeat()
  } catch (error) {
    throw refusesAgent(error) ? farewell(error, agent.identity.file) : error
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
