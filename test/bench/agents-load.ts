import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Summary } from '../../src/device-agent/simulate/summary.ts'
import { visits } from './agents-visits.ts'
import { fromHere, stop, temporaryFolder } from './children.ts'
import { atMost, median, type Row, rounded } from './figures.ts'
import { longestStall, residentMb, type Server, startService } from './servers.ts'
import { intervalSeconds, type Progress, startFleet } from './simulated-fleet.ts'
import { buildWorld, type Place } from './world.ts'

export type LoadOptions = {
  minutes: number
  agents: number
  sockets: number
  /** A database of its own for each service; none: SQLite. */
  newDatabase?: () => Promise<string>
}

/** Entries a minute, of all agents together. */
const logs = 6000
const events = 1200
const patience = { admin: 100, stall: 50, simulatorMb: 300 }

/**
 * A fleet that reports, next to people who work: the service, the fleet and the people in a process each. What is
 * measured begins when every agent has reported once.
 */
export async function load(options: LoadOptions, say: (line: string) => void): Promise<Row[]> {
  const { minutes, agents, sockets } = options
  const count = agents.toLocaleString('en-US')
  say(`agents: filling in ${count} machines`)
  const dataDir = temporaryFolder('load')
  const place: Place = options.newDatabase
    ? { dataDir, databaseUrl: await options.newDatabase() }
    : { dataDir }
  const world = await buildWorld(place, agents)
  const stallsFile = join(dataDir, 'stalls')
  const server = await startService('svc', place, {
    nodeFlags: ['--import', fromHere('./stalls.ts')],
    env: { STALLS_FILE: stallsFile },
  })
  const warmUp = intervalSeconds + 15
  const fleet = startFleet(server.url, world.agents, {
    sockets,
    logs,
    events,
    seconds: warmUp + minutes * 60,
  })
  say(`agents: ${count} of them report, ${sockets.toLocaleString('en-US')} are connected; warming up`)
  await sleep(warmUp * 1000)
  say(`agents: measuring for ${minutes} min`)
  const people = visits(server.url, world)
  const watch = await watched(server, stallsFile, minutes * 60_000, say)
  const visited = await people.end()
  const simulator = residentMb(fleet.child) ?? Number.NaN
  const summary = await fleet.end
  const { windows } = fleet
  await stop(server.child, 30_000)
  return rowsOf(`${count} agents, ${minutes} min`, { visited, watch, summary, windows, simulator, sockets })
}

type Watch = { from: number; memory: { seconds: number; mb: number }[]; stalls: number[] }

/** The memory of the service each second, and for how long its event loop stood still in each five. */
async function watched(
  server: Server,
  stallsFile: string,
  milliseconds: number,
  say: (line: string) => void,
): Promise<Watch> {
  const from = performance.now()
  const watch: Watch = { from, memory: [], stalls: [] }
  await longestStall(server, stallsFile)
  for (let second = 1; performance.now() - from < milliseconds; second++) {
    await sleep(Math.max(0, from + second * 1000 - performance.now()))
    watch.memory.push({ seconds: second, mb: residentMb(server.child) ?? Number.NaN })
    if (second % 5 === 0) watch.stalls.push(await longestStall(server, stallsFile))
    if (second % 60 === 0) say(`agents: ${second / 60} min, ${rounded(watch.memory.at(-1)!.mb)} MB resident`)
  }
  return watch
}

type Measured = {
  visited: Awaited<ReturnType<ReturnType<typeof visits>['end']>>
  watch: Watch
  summary: Summary
  windows: readonly Progress[]
  simulator: number
  sockets: number
}

function rowsOf(subject: string, { visited, watch, summary, windows, simulator, sockets }: Measured): Row[] {
  const row = (what: string, more: Omit<Row, 'bench' | 'subject'>): Row => ({
    bench: 'agents',
    subject: `${subject}: ${what}`,
    ...more,
  })
  const measured = windows.filter(({ at }) => at > watch.from)
  const of = (pick: (one: Progress) => number) => measured.map(pick)
  const { connections, reasons } = summary
  return [
    row('heartbeats', {
      figures: {
        '/s': median(of((one) => one.heartbeatsPerSecond)),
        'p50 ms': median(of((one) => one.p50Ms)),
        'p99 ms': median(of((one) => one.p99Ms)),
        'p99 ms in the worst 10 s': Math.max(...of((one) => one.p99Ms)),
        late: summary.late,
        missed: summary.missed,
        failures: summary.failures,
        ...(summary.failures > 0 && { reasons: JSON.stringify(reasons) }),
      },
      aim: 'none missed',
      met: summary.missed === 0 && summary.online === summary.agents,
    }),
    row('handed in', { figures: { logs: summary.logs, events: summary.events } }),
    row('WebSockets', {
      figures: { open: connections.open, opened: connections.opened, lost: connections.lost },
      aim: 'none lost',
      met: connections.lost === 0 && connections.open === sockets,
    }),
    row('people at work', {
      figures: {
        'p50 ms': visited.all.p50,
        'p99 ms': visited.all.p99,
        'worst ms': visited.all.worst,
        requests: visited.all.count,
      },
      aim: `p99 ≤ ${patience.admin} ms`,
      met: visited.all.p99 <= patience.admin,
    }),
    ...visited.each.map(({ name, p50, p99, worst }) =>
      row(name, { figures: { 'p50 ms': p50, 'p99 ms': p99, 'worst ms': worst } }),
    ),
    row('event loop', {
      figures: { 'stall ms, median of 5 s': median(watch.stalls), 'worst ms': Math.max(...watch.stalls) },
      ...atMost(Math.max(...watch.stalls), patience.stall, ' ms'),
    }),
    row('memory', memoryOf(watch)),
    row('memory of the simulator', {
      figures: { 'MB resident': simulator },
      ...atMost(simulator, patience.simulatorMb, ' MB'),
    }),
  ]
}

/** Flat: the last third is no more than a tenth above the second one. */
function memoryOf({ memory }: Watch): Pick<Row, 'figures' | 'aim' | 'met'> {
  const mean = (of: Watch['memory']) => of.reduce((sum, { mb }) => sum + mb, 0) / of.length
  const third = Math.floor(memory.length / 3)
  const [second, last] = [mean(memory.slice(third, 2 * third)), mean(memory.slice(2 * third))]
  return {
    figures: {
      'MB first': memory[0]!.mb,
      'MB last': memory.at(-1)!.mb,
      'MB at most': Math.max(...memory.map(({ mb }) => mb)),
      'MB an hour, over the last two thirds': slopeOf(memory.slice(third)) * 3600,
    },
    aim: 'last third ≤ 1.1 × second third',
    met: last <= second * 1.1,
  }
}

/** Of the line that fits best, by least squares. */
function slopeOf(points: Watch['memory']): number {
  const mean = (pick: (one: Watch['memory'][number]) => number) =>
    points.reduce((sum, one) => sum + pick(one), 0) / points.length
  const [x, y] = [mean(({ seconds }) => seconds), mean(({ mb }) => mb)]
  const over = points.reduce((sum, { seconds, mb }) => sum + (seconds - x) * (mb - y), 0)
  return over / points.reduce((sum, { seconds }) => sum + (seconds - x) ** 2, 0)
}
