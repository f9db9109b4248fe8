import type { WebSocket } from 'ws'
import { parseJson } from '../../core/json.ts'
import { safeParse } from '../../core/schema.ts'
import { Command } from '../../live/wire/contract.ts'
import type { Dial } from '../agent.ts'
import { runCommand } from './commands.ts'
import { backoffMs, type Fleet, pause, type SimulatedAgent } from './fleet.ts'
import { seededRandom } from './seeded-random.ts'

/** Milliseconds between the first connections. */
const paceMs = 5
/** A connection that lasted this long counts as successful. */
const goodMs = 10_000

/** Keeps the planned number of agents connected, spread over the fleet, until everything stops. */
export async function keepConnected(fleet: Fleet, dial: Dial): Promise<void> {
  const { plan, agents, signal } = fleet
  const many = Math.min(plan.websockets, plan.count)
  for (let at = 0; at < many; at++) {
    const agent = agents[Math.floor((at * plan.count) / many)]
    if (agent) void stayConnected(fleet, agent, dial)
    if (!(await pause(paceMs, signal))) return
  }
}

async function stayConnected(fleet: Fleet, agent: SimulatedAgent, dial: Dial): Promise<void> {
  const { tally, plan, signal } = fleet
  for (let failures = 0; agent.state !== 'gone'; ) {
    const began = performance.now()
    if (agent.state === 'up') {
      const reason = await connection(fleet, agent, dial)
      if (signal.aborted) return
      failures = performance.now() - began < goodMs ? failures + 1 : 1
      // An agent that restarts for an update closes its connection: that is not a failure.
      if (agent.state === 'up') tally.recordFailure(reason)
    }
    const wait =
      agent.state === 'up' ? backoffMs(failures, 0, seededRandom(plan.seed, agent.n, 'dial')) : 1000
    if (!(await pause(wait, signal))) return
  }
}

/** One connection until it closes; returns the reason. */
async function connection(fleet: Fleet, agent: SimulatedAgent, dial: Dial): Promise<string> {
  const { signal, tally } = fleet
  const { connections } = tally.counts
  let socket: WebSocket
  try {
    socket = await dial(agent.id, agent.token)
  } catch (error) {
    return (error as Error).message
  }
  return new Promise((resolve) => {
    let isOpen = false
    let reason = ''
    const hangUp = (): void => socket.terminate()
    agent.hangUp = hangUp
    signal.addEventListener('abort', hangUp, { once: true })
    if (signal.aborted) hangUp()
    socket.on('error', ({ message }) => {
      reason = message
    })
    socket.on('close', (code, said) => {
      agent.hangUp = undefined
      signal.removeEventListener('abort', hangUp)
      if (isOpen) {
        connections.open -= 1
        if (!signal.aborted && agent.state === 'up') connections.lost += 1
      }
      resolve(`WebSocket: ${reason || said.toString() || code}`)
    })
    socket.on('open', () => {
      isOpen = true
      connections.open += 1
      connections.opened += 1
    })
    socket.on('message', (data) => take(fleet, agent, socket, String(data)))
  })
}

function take(fleet: Fleet, agent: SimulatedAgent, socket: WebSocket, text: string): void {
  const frame = parseJson(text) as { type?: unknown } | undefined
  if (frame?.type === 'ping') socket.send('{"type":"pong"}')
  const { success, data: command } = safeParse(Command, frame)
  if (!success) return
  runCommand(fleet, agent, command).then((outcome) => {
    if (socket.readyState !== socket.OPEN) return
    socket.send(JSON.stringify({ type: 'command_result', commandId: command.id, ...outcome }))
  })
}
