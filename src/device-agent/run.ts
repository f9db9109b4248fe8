import { ApiError } from '../core/client.ts'
import type { Agent } from './agent.ts'
import { commandRunner } from './commands/runner.ts'
import { deviceKeyClient } from './device-key-client.ts'
import { diagnosticsRecorder } from './diagnostics.ts'
import { enroll } from './enrollment.ts'
import { heartbeatSender, reportLoop } from './heartbeats.ts'
import { identityHolder } from './identity-holder.ts'
import { keepListening } from './live/connection.ts'
import { logShipper } from './log-shipper.ts'
import { startReporter } from './reporter.ts'
import { isAgentRefused } from './retry.ts'
import { tokenRotator } from './rotation.ts'
import type { Identity } from './state.ts'

export type RunOptions = {
  /** Sends one inventory, one heartbeat and the machine's logs, without retries. */
  once?: boolean | undefined
  /** Overrides the interval of the service. */
  intervalSeconds?: number | undefined
}

/** Enrolls this machine if necessary and reports until the signal aborts or the service refuses the agent. */
export async function runAgent(
  agent: Agent,
  { once = false, intervalSeconds }: RunOptions = {},
): Promise<void> {
  const diagnostics = diagnosticsRecorder(agent.spool, agent.clock.now)
  const ended = new AbortController()
  const watched = { ...agent, report: diagnostics.watch(agent.report) }
  try {
    const identity = identityHolder(agent.identity, await loadOrEnroll(watched, once))
    const { deviceId } = identity.current()
    const reporter = await startReporter(watched, identity)
    const rotation = tokenRotator(watched, identity)
    const keys = deviceKeyClient(watched, identity, rotation)
    const logs = logShipper(watched, reporter)
    const performer = commandRunner(watched, deviceId, {
      diagnostics,
      collect: { inventory: reporter.inventory, metrics: () => heartbeat(), logs: logs.sendEvents },
      async reportOutcome(commandId, outcome) {
        agent.spool.append({ kind: 'result', commandId, outcome }, { durable: true })
        await logs.sendSpooled()
      },
    })
    const perform = performer.perform
    const heartbeat = heartbeatSender(watched, identity, { reporter, rotation, keys, perform })
    if (identity.current().staged) await rotation.resume()
    // Runs beside the heartbeats, which never wait for it, and stops with them.
    const listening = { ...watched, signal: AbortSignal.any([agent.signal, ended.signal]) }
    if (!once) void keepListening(listening, identity, { logs: agent.machine.liveLogs, perform })
    if (!once) await reportLoop(watched, identity, { heartbeat, reporter, keys, logs }, intervalSeconds)
    await keys.withToken(reporter.inventory)
    await heartbeat()
    await logs.sendEvents()
    await keys.registerWhenDue()
    await performer.settled()
  } catch (error) {
    throw isAgentRefused(error) ? withAdvice(error, agent.identity.file) : error
  } finally {
    ended.abort()
    agent.spool.close()
  }
}

/** The identity of an earlier run or, the first time, of an enrollment. */
async function loadOrEnroll(agent: Agent, once: boolean): Promise<Identity> {
  const known = agent.identity.load()
  const identity = known ?? (await enroll(agent, once))
  const { deviceId, agentId, orgId, siteId } = identity
  const { url } = agent.connect()
  agent.report({ event: known ? 'resumed' : 'enrolled', deviceId, agentId, orgId, siteId, url })
  return identity
}

/** The refusal with advice for the operator. */
function withAdvice({ status, code, message, requestId }: ApiError, file: string): ApiError {
  const advice =
    code === 'device_decommissioned'
      ? 'restore the device, or remove'
      : code === 'machine_copied'
        ? 'on one of the two, remove'
        : 'the service no longer accepts this machine; to enroll it again, remove'
  return new ApiError(status, {
    error: `${message}: ${advice} ${file} and start the agent with an enrollment key`,
    code,
    ...(requestId && { requestId }),
  })
}
