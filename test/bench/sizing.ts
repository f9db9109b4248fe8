import { type ChildProcess, execFileSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { stop, temporaryFolder } from './children.ts'
import { atMost, median, type Row } from './figures.ts'
import { cpuOf, residentMb, type Server, startService } from './servers.ts'
import { intervalSeconds, type Progress, type SimulatedFleet, startFleet } from './simulated-fleet.ts'
import { buildWorld, type Place, type World } from './world.ts'

export type SizingOptions = {
  /** Agents, one size after the other. */
  sizes: readonly number[]
  replicas: number
  /** Each agent reports again after an outage in which all of them have failed. */
  storm: boolean
  seconds: number
  /** A database of its own for each service; none: SQLite. */
  newDatabase?: () => Promise<string>
}

/** Every agent has failed at least once by the end of it. */
const outageSeconds = intervalSeconds + 30
const patience = { recoverySeconds: 300 }

/** What a fleet that reports every minute takes of a machine, and how soon all of it is back after an outage. */
export async function sizing(options: SizingOptions, say: (line: string) => void): Promise<Row[]> {
  const rows: Row[] = []
  for (const size of options.sizes) rows.push(...(await one(size, options, say)))
  return rows
}

async function one(size: number, options: SizingOptions, say: (line: string) => void): Promise<Row[]> {
  const { replicas, seconds, storm, newDatabase } = options
  const count = size.toLocaleString('en-US')
  const on = newDatabase ? `Postgres, ${replicas} ${replicas === 1 ? 'process' : 'processes'}` : 'SQLite'
  const subject = `${count} agents, ${on}`
  const place: Place = { dataDir: temporaryFolder('sizing') }
  if (newDatabase) place.databaseUrl = await newDatabase()
  say(`sizing: ${subject}: filling in`)
  const world = await buildWorld(place, size)
  if (place.databaseUrl !== undefined) await analyze(place.databaseUrl)
  const places = Array.from({ length: replicas }, (_, n) =>
    n === 0 ? place : { ...place, dataDir: temporaryFolder('sizing') },
  )
  const servers = await Promise.all(places.map((each) => startService('svc', each)))
  const warmUp = intervalSeconds + 15
  const max = warmUp + patience.recoverySeconds + seconds + (storm ? outageSeconds + 600 : 5)
  const fleets = fleetsOf(servers, world, max)
  say(`sizing: ${subject}: warming up`)
  await sleep(warmUp * 1000)
  // The first report of a machine is its largest. No fleet sends all of those at once, so they are not measured.
  const steadyBy = performance.now() + patience.recoverySeconds * 1000
  while (!isWell(fleets, 0) && performance.now() < steadyBy) await sleep(1000)
  say(`sizing: ${subject}: measuring for ${seconds} s`)
  const begun = await usageOf(servers, place)
  await sleep(seconds * 1000)
  const ended = await usageOf(servers, place)
  const rows = [steady(subject, { size, begun, ended, fleets })]
  if (storm) rows.push(await recover(subject, { size, servers, places, fleets }, say))
  for (const { child } of fleets) await stop(child)
  for (const { child } of servers) await stop(child, 30_000)
  return rows
}

/** Each process of the service has as many agents as the others. */
function fleetsOf(servers: readonly Server[], { agents }: World, seconds: number): SimulatedFleet[] {
  const share = Math.ceil(agents.length / servers.length)
  return servers.map(({ url }, n) => {
    const own = agents.slice(n * share, (n + 1) * share)
    // A tenth has a WebSocket, as far as one address may have as many; each writes an entry of its log every ten minutes.
    const fleet = startFleet(url, own, {
      sockets: Math.min(500, Math.floor(own.length / 10)),
      seconds,
      logs: Math.ceil(own.length / 10),
      events: 1,
    })
    fleet.end.catch(() => {})
    return fleet
  })
}

/** A fleet grows over months, in which autovacuum has seen every table. */
async function analyze(databaseUrl: string): Promise<void> {
  const client = new pg.Client(databaseUrl)
  await client.connect()
  try {
    await client.query('analyze')
  } finally {
    await client.end()
  }
}

type Usage = {
  at: number
  /** Seconds of processor time. */
  serviceCpu: number
  databaseCpu: number
  residentMb: number
  connections: number
  /** Bytes of its log that a database has written. */
  written: number
  stored: number
}

async function usageOf(servers: readonly Server[], { dataDir, databaseUrl }: Place): Promise<Usage> {
  const sum = (of: (child: ChildProcess) => number | undefined) =>
    servers.reduce((all, { child }) => all + (of(child) ?? Number.NaN), 0)
  const service = {
    at: performance.now(),
    serviceCpu: sum(cpuOf) / 1e6,
    residentMb: sum((child) => residentMb(child)),
  }
  if (databaseUrl === undefined) {
    const io = sum(({ pid }) =>
      Number(/^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1]),
    )
    const stored = statSync(join(dataDir, 'svc.sqlite')).size
    return { ...service, databaseCpu: 0, connections: 0, written: io, stored }
  }
  const client = new pg.Client(databaseUrl)
  await client.connect()
  try {
    const { rows } = await client.query(`
      select pg_backend_pid() as session, (select wal_bytes::float8 from pg_stat_wal) as written, pg_database_size(current_database())::float8 as stored,
        (select count(*)::int - 1 from pg_stat_activity where datname = current_database()) as connections`)
    const { session, ...found } = rows[0]
    return { ...service, databaseCpu: cpuOfPostgres(session), ...found }
  } finally {
    await client.end()
  }
}

/** Seconds of processor time of the server of this session, ended sessions included. */
function cpuOfPostgres(session: number): number {
  const [server] = fieldsOf(session).slice(1)
  const running = execFileSync('pgrep', ['-P', server!], { encoding: 'utf8' }).trim().split('\n')
  return [server!, ...running].reduce((all, id) => {
    try {
      return (
        all +
        fieldsOf(id)
          .slice(11, 15)
          .reduce((ticks, one) => ticks + Number(one), 0) /
          100
      )
    } catch {
      // It ended just now, and counts as a child of the server.
      return all
    }
  }, 0)
}

/** Of /proc/ID/stat, from the state on: see proc(5). */
const fieldsOf = (id: number | string): string[] =>
  readFileSync(`/proc/${id}/stat`, 'utf8').split(') ')[1]!.split(' ')

const windowsSince = (fleets: readonly SimulatedFleet[], at: number): Progress[][] =>
  fleets.map((fleet) => fleet.windows.filter((window) => window.at > at))

/** Every agent has reported since then, and none has missed a report of late. */
const isWell = (fleets: readonly SimulatedFleet[], since: number): boolean =>
  windowsSince(fleets, since).every((own) => {
    const [before, now] = own.slice(-2)
    return now !== undefined && now.online === now.agents && now.missed === before?.missed
  })

type Steady = { size: number; begun: Usage; ended: Usage; fleets: readonly SimulatedFleet[] }

function steady(subject: string, { size, begun, ended, fleets }: Steady): Row {
  const seconds = (ended.at - begun.at) / 1000
  const perThousand = (value: number) => value / (size / 1000)
  const each = windowsSince(fleets, begun.at)
  const windows = each.flat()
  const sumOf = (of: (own: Progress[]) => number) => each.reduce((sum, own) => sum + of(own), 0)
  const since = (count: (window: Progress) => number) =>
    sumOf((own) => (own.length === 0 ? Number.NaN : count(own.at(-1)!) - count(own[0]!)))
  const cores = (cpu: number) => (100 * cpu) / seconds
  const missed = since((window) => window.missed)
  return {
    bench: 'sizing',
    subject,
    figures: {
      'heartbeats/s': sumOf((own) => median(own.map((window) => window.heartbeatsPerSecond))),
      'p50 ms': median(windows.map(({ p50Ms }) => p50Ms)),
      'p99 ms': median(windows.map(({ p99Ms }) => p99Ms)),
      'service % of a core': cores(ended.serviceCpu - begun.serviceCpu),
      'per 1,000 agents': perThousand(cores(ended.serviceCpu - begun.serviceCpu)),
      'database % of a core': cores(ended.databaseCpu - begun.databaseCpu),
      'MB resident': ended.residentMb,
      'MB written/min': (ended.written - begun.written) / 1e6 / (seconds / 60),
      'MB stored': ended.stored / 1e6,
      connections: ended.connections,
      missed,
      failures: since((window) => window.failures),
    },
    aim: 'none missed',
    met: missed === 0,
  }
}

type Outage = {
  size: number
  servers: Server[]
  places: readonly Place[]
  fleets: readonly SimulatedFleet[]
}

/** Kills the service, waits until every agent has noticed, starts it, and waits until every agent has reported. */
async function recover(
  subject: string,
  { size, servers, places, fleets }: Outage,
  say: (line: string) => void,
): Promise<Row> {
  say(`sizing: ${subject}: the service is gone for ${outageSeconds} s`)
  for (const { child } of servers) child.kill('SIGKILL')
  await sleep(outageSeconds * 1000)
  const ports = servers.map(({ url }) => Number(new URL(url).port))
  const back = performance.now()
  servers.splice(
    0,
    servers.length,
    ...(await Promise.all(places.map((place, n) => startService('svc', place, { port: ports[n]! })))),
  )
  say(`sizing: ${subject}: it is back`)
  const until = back + 2 * patience.recoverySeconds * 1000
  while (!isWell(fleets, back) && performance.now() < until) await sleep(1000)
  const seconds = (performance.now() - back) / 1000
  const all = windowsSince(fleets, back).flat()
  return {
    bench: 'sizing',
    subject: `${subject}: all of them after an outage`,
    figures: {
      seconds,
      'most heartbeats/s': Math.max(...all.map((window) => window.heartbeatsPerSecond)) * fleets.length,
      'p99 ms in the worst 10 s': Math.max(...all.map(({ p99Ms }) => p99Ms)),
      'MB resident at most': servers.reduce((sum, { child }) => sum + (residentMb(child, 'VmHWM') ?? 0), 0),
      agents: size,
    },
    ...atMost(seconds, patience.recoverySeconds, ' s'),
  }
}
