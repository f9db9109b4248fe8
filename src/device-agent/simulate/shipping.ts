import { type Fleet, pause, type SimulatedAgent } from './fleet.ts'
import type { Reply } from './http-pool.ts'
import { oneOf, seededRandom } from './seeded-random.ts'

/** Entries that an agent sends at a time. */
const batchSize = 5

/** Lets the agents send entries in turn, at the planned rate of the fleet, until everything stops. */
export function startShipping(fleet: Fleet): void {
  const { logsPerMinute, eventsPerMinute } = fleet.plan
  if (logsPerMinute > 0) void roundRobin(fleet, logsPerMinute, sendLogs)
  if (eventsPerMinute > 0) void roundRobin(fleet, eventsPerMinute, sendEvents)
}

async function roundRobin(
  fleet: Fleet,
  perMinute: number,
  send: (fleet: Fleet, agent: SimulatedAgent, count: number) => Promise<void>,
): Promise<void> {
  const { plan, agents, signal } = fleet
  const count = Math.min(batchSize, perMinute)
  const everyMs = (60_000 * count) / perMinute
  let turn = 0
  for (let due = performance.now(); ; due += everyMs) {
    if (!(await pause(Math.max(0, due - performance.now()), signal))) return
    const agent = agents[turn++ % plan.count]
    if (agent?.state === 'up') void send(fleet, agent, count)
  }
}

export async function sendLogs(fleet: Fleet, agent: SimulatedAgent, count: number): Promise<void> {
  const { n, id, token, version } = agent
  const timestamp = new Date().toISOString()
  const logs = Array.from({ length: count }, (_, at) => ({
    timestamp,
    level: at === 0 ? 'warn' : 'info',
    component: 'heartbeat',
    agentVersion: version,
    message: `The service answered after ${20 + at} ms`,
    fields: { agent: n },
  }))
  const reply = await fleet.wire.send('POST', `/agents/${id}/logs`, { token, body: { logs } })
  note(fleet, reply, () => {
    fleet.tally.counts.logs += count
  })
}

async function sendEvents(fleet: Fleet, agent: SimulatedAgent, count: number): Promise<void> {
  const { n, id, token } = agent
  const now = new Date()
  const events = Array.from({ length: count }, (_, at) => ({
    timestamp: now.toISOString(),
    category: 'system',
    source: 'simulator',
    level: oneOf(['info', 'info', 'warning', 'error'], seededRandom(fleet.plan.seed, n + at, 'level')),
    // Unique per record: the service ignores duplicate ids.
    eventId: `${now.getTime()}-${at}`,
    message: 'A unit has started',
  }))
  const reply = await fleet.wire.send('PUT', `/agents/${id}/eventlogs`, { token, body: { events } })
  note(fleet, reply, () => {
    fleet.tally.counts.events += count
  })
}

function note({ tally, signal }: Fleet, { status, reason }: Reply, count: () => void): void {
  if (signal.aborted) return
  if (status === 200 || status === 201) count()
  else tally.recordFailure(reason)
}
