import { isOlder } from '../../agents/versions/semver.ts'
import { runCommand } from './commands.ts'
import { type Fleet, goOffline, pause, type SimulatedAgent } from './fleet.ts'
import { seededRandom } from './seeded-random.ts'
import { failureModeOf, updateSteps } from './updates.ts'

type HeartbeatReply = {
  commands?: { id: string; type: string; payload: Record<string, unknown> }[]
  configUpdate?: { autoUpdate?: unknown } | null
  upgradeTo?: string | null
  rollback?: boolean
  rotateToken?: boolean
}

/** Applies the reply to a heartbeat. */
export function applyReply(fleet: Fleet, agent: SimulatedAgent, reply: unknown): void {
  const { commands = [], configUpdate, upgradeTo, rollback, rotateToken } = (reply ?? {}) as HeartbeatReply
  if (typeof configUpdate?.autoUpdate === 'boolean') agent.autoUpdate = configUpdate.autoUpdate
  for (const command of commands) void answer(fleet, agent, command)
  if (rotateToken === true) void rotate(fleet, agent)
  if (typeof upgradeTo !== 'string' || upgradeTo === agent.version) return
  // Like a real agent: it refuses an older version unless the reply marks it as a roll-back.
  const isTaken = rollback === true || !isOlder(upgradeTo, agent.version)
  if (isTaken && agent.autoUpdate && !agent.isUpdating) {
    agent.isUpdating = true
    update(fleet, agent, upgradeTo).finally(() => {
      agent.isUpdating = false
    })
  }
}

async function answer(
  fleet: Fleet,
  agent: SimulatedAgent,
  command: NonNullable<HeartbeatReply['commands']>[number],
): Promise<void> {
  const body = await runCommand(fleet, agent, command)
  await post(fleet, agent, `commands/${command.id}/result`, body)
}

/** Follows an offer according to its failure mode: see `updateSteps`. */
async function update(fleet: Fleet, agent: SimulatedAgent, to: string): Promise<void> {
  const { plan, tally, signal } = fleet
  const { counts } = tally
  const fate = failureModeOf(plan, agent.n)
  const about = { from: agent.version, to, updateMs: plan.updateMs }
  counts.updates.begun += 1
  for (const step of updateSteps(fate, about, seededRandom(plan.seed, agent.n, to))) {
    switch (step.do) {
      case 'say': {
        if (step.state !== 'updating') counts.updates.failed += 1
        const { state, reason } = step
        await post(fleet, agent, 'update-status', { targetVersion: to, state, ...(reason && { reason }) })
        break
      }
      case 'wait':
        goOffline(agent, 'away')
        if (!(await pause(step.ms, signal))) return
        break
      case 'vanish':
        goOffline(agent, 'gone')
        counts.updates.failed += 1
        return
      case 'report':
        if (step.version === to) counts.updates.done += 1
        else if (step.version !== about.from) counts.updates.failed += 1
        agent.version = step.version
        agent.state = 'up'
        fleet.beatNow(agent)
    }
  }
}

/** Rotates in two steps, as the service requires: the new token becomes active when it is used. */
async function rotate(fleet: Fleet, agent: SimulatedAgent): Promise<void> {
  const staged = await post(fleet, agent, 'rotate-token', undefined)
  const { authToken } = (staged ?? {}) as { authToken?: unknown }
  if (typeof authToken !== 'string') return
  const before = agent.token
  agent.token = authToken
  if ((await post(fleet, agent, 'rotate-token/confirm', undefined)) === undefined) agent.token = before
}

/** The body of the reply; undefined for a failure. */
async function post(fleet: Fleet, { id, token }: SimulatedAgent, what: string, body: unknown) {
  const said = { token, ...(body !== undefined && { body }) }
  const reply = await fleet.wire.send('POST', `/agents/${id}/${what}`, said)
  if (reply.status >= 200 && reply.status < 300) return reply.body ?? {}
  if (!fleet.signal.aborted) fleet.tally.recordFailure(reply.reason)
  return undefined
}
