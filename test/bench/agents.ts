import { agents as contract } from '../../src/agents/contract.ts'
import { type LoadOptions, load } from './agents-load.ts'
import { stop, temporaryFolder } from './children.ts'
import { type Contestant, compete, type Pace, routeOf, type Scenario } from './contest.ts'
import type { Row } from './figures.ts'
import { startLoader } from './loader.ts'
import { startBare, startService } from './servers.ts'
import { buildWorld, type Place, type World } from './world.ts'

export type AgentsOptions = Pace & {
  /** How many machines there are, one after the other. */
  sizes: readonly number[]
  /** A database of its own for each service; none: SQLite. */
  newDatabase?: () => Promise<string>
  load?: Omit<LoadOptions, 'newDatabase'> | undefined
}

/** Heartbeats next to a bare route that gives the same reply; with `load`, a fleet next to people who work. */
export async function agents(options: AgentsOptions, say: (line: string) => void): Promise<Row[]> {
  const { newDatabase } = options
  if (options.load) return load({ ...options.load, ...(newDatabase && { newDatabase }) }, say)
  const rows: Row[] = []
  for (const size of options.sizes) rows.push(...(await heartbeats(size, options, say)))
  return rows
}

async function heartbeats(size: number, options: AgentsOptions, say: (line: string) => void): Promise<Row[]> {
  const count = size.toLocaleString('en-US')
  say(`agents: heartbeats of ${count} machines`)
  const dataDir = temporaryFolder('agents')
  const place: Place = options.newDatabase
    ? { dataDir, databaseUrl: await options.newDatabase() }
    : { dataDir }
  const scenario = scenarioOf(await buildWorld(place, size), `heartbeat, ${count} machines`)
  const loader = startLoader()
  const service = await startService('svc', place, {
    nodeFlags: process.env.PROF ? ['--cpu-prof', '--cpu-prof-dir', process.env.PROF] : [],
  })
  const routes = [await routeOf(service, scenario)]
  const bare = [
    await startBare('bare Fastify', 'fastify', routes),
    await startBare('bare node:http', 'http', routes),
  ] as const
  const { requests } = scenario
  // What each of them says for the first time is kept in another way than that it is alive.
  const first = {
    requests,
    status: 200,
    connections: options.connections,
    milliseconds: 500 + Math.ceil(size / 3),
  }
  await loader({ url: service.url, ...first })
  const contestants: Contestant[] = [
    { server: service, requests, as: 'subject' },
    { server: bare[0], requests, as: 'base' },
    { server: bare[1], requests, as: 'other' },
  ]
  const rows = await compete('agents', scenario, contestants, loader, options)
  for (const { child } of [service, ...bare]) await stop(child)
  return rows
}

export function scenarioOf({ agents: machines }: World, name: string): Scenario {
  return {
    name,
    entry: contract.heartbeat,
    path: '/api/v1/agents/:id/heartbeat',
    requests: machines.map(({ id, token }, n) => ({
      method: 'POST',
      path: `/api/v1/agents/${id}/heartbeat`,
      headers: { authorization: `Bearer ${token}`, 'user-agent': 'svc-agent/0.1.0' },
      body: JSON.stringify(heartbeat(n)),
    })),
    aim: 0.35,
  }
}

const heartbeat = (n: number) => ({
  status: 'ok',
  agentVersion: '0.1.0',
  hostname: `machine-${n + 1}`,
  osType: 'linux',
  osVersion: 'Debian 12',
  osBuild: '6.1.0-18-amd64',
  architecture: 'x64',
  deviceRole: 'workstation',
  isVirtual: false,
  isHeadless: false,
  uptime: 86_400 + n,
  lastUser: 'reception',
  pendingReboot: false,
  autoUpdate: true,
  role: 'agent',
  metrics: {
    cpuPercent: (n * 7) % 100,
    ramPercent: 61.5,
    ramUsedMb: 10_000 + n,
    diskPercent: 42.1,
    diskUsedGb: 210.4,
    processCount: 300 + n,
  },
})
