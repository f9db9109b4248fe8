import { agents } from '../../src/agents/contract.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'
import { devices } from '../../src/devices/contract.ts'
import { service } from '../../src/service/contract.ts'
import { openStorage } from '../../src/storage/open.ts'
import { orgs, sites } from '../../src/tenancy/contract.ts'
import { stop, temporaryFolder } from './children.ts'
import { type Contestant, compete, type Pace, routeOf, type Scenario } from './contest.ts'
import type { Row } from './figures.ts'
import { startLoader } from './loader.ts'
import { residentMb, startBare, startService } from './servers.ts'
import { buildWorld, type Place, type World } from './world.ts'

export type HttpOptions = Pace & {
  /** A database of its own for each service; none: SQLite. */
  newDatabase?: () => Promise<string>
}

export function scenariosOf({ tokens, agents: machines, orgId, apiKeys }: World): Scenario[] {
  const as = (token: string) => ({ authorization: `Bearer ${token}` })
  const get = (path: string, headers = {}) => ({ method: 'GET', path, headers })
  return [
    { name: 'health', entry: service.health, path: '/health', requests: [get('/health')] },
    {
      name: 'list sites',
      entry: sites.list,
      path: '/api/v1/orgs/sites',
      requests: [get('/api/v1/orgs/sites', as(tokens.orgAdmin))],
      aim: 0.4,
    },
    {
      name: 'list orgs',
      entry: orgs.list,
      path: '/api/v1/orgs/',
      requests: [get('/api/v1/orgs/', as(tokens.partnerAdmin))],
      aim: 0.4,
    },
    {
      name: 'list devices by key',
      entry: devices.list,
      path: '/api/v1/devices',
      requests: apiKeys.map((key) => get('/api/v1/devices?limit=20', { 'x-api-key': key })),
      aim: 0.4,
    },
    {
      name: 'mint key',
      entry: enrollmentKeys.create,
      path: '/api/v1/enrollment-keys',
      requests: [
        {
          method: 'POST',
          path: '/api/v1/enrollment-keys',
          headers: as(tokens.orgAdmin),
          body: JSON.stringify({ orgId, name: 'Reception laptops', maxUsage: 5 }),
        },
      ],
      aim: 0.18,
    },
    {
      name: 'heartbeat',
      entry: agents.heartbeat,
      path: '/api/v1/agents/:id/heartbeat',
      requests: machines.map(({ id, token }, n) => ({
        method: 'POST',
        path: `/api/v1/agents/${id}/heartbeat`,
        headers: as(token),
        body: JSON.stringify(heartbeat(n)),
      })),
      aim: 0.4,
    },
  ]
}

const heartbeat = (n: number) => ({
  status: 'ok',
  agentVersion: '0.1.0',
  uptime: 86_400 + n,
  metrics: {
    cpuPercent: (n * 7) % 100,
    ramPercent: 61.5,
    ramUsedMb: 10_000 + n,
    diskPercent: 42.1,
    diskUsedGb: 210.4,
    processCount: 300 + n,
  },
})

/** Requests per second of each scenario, next to bare servers that give the same replies. */
export async function http(options: HttpOptions, say: (line: string) => void): Promise<Row[]> {
  const quiet = await newPlace(options)
  const chatty = await newPlace(options)
  const world = await buildWorld(quiet)
  const chattyWorld = await buildWorld(chatty)
  const storages = [await openStorage(quiet), await openStorage(chatty)] as const
  const load = startLoader()
  // One caller makes all the load.
  const env = { QUESTIONS_PER_CALLER: '100', QUESTIONS_PER_TENANT: '100' }
  const subjects = [
    await startService('svc', quiet, { env }),
    await startService('svc, LOG_LEVEL=info', chatty, { logLevel: 'info', env }),
  ] as const
  const scenarios = scenariosOf(world)
  const routes = await Promise.all(scenarios.map((scenario) => routeOf(subjects[0], scenario)))
  const bare = [
    await startBare('bare Fastify', 'fastify', routes),
    await startBare('bare node:http', 'http', routes),
  ] as const
  const chattyScenarios = scenariosOf(chattyWorld)

  const rows: Row[] = []
  for (const [index, scenario] of scenarios.entries()) {
    say(`http: ${scenario.name}`)
    const contestants: Contestant[] = [
      { server: subjects[0], requests: scenario.requests, as: 'subject', storage: storages[0] },
      {
        server: subjects[1],
        requests: chattyScenarios[index]!.requests,
        as: 'subject',
        storage: storages[1],
      },
      { server: bare[0], requests: scenario.requests, as: 'base' },
      { server: bare[1], requests: scenario.requests, as: 'other' },
    ]
    rows.push(...(await compete('http', scenario, contestants, load, options)))
  }
  const memory = residentMb(subjects[0].child)
  if (memory !== undefined) {
    rows.push({ bench: 'http', subject: 'svc after the load', figures: { 'MB resident': memory } })
  }
  for (const storage of storages) await storage.close()
  for (const { child } of [...subjects, ...bare]) await stop(child)
  return rows
}

async function newPlace({ newDatabase }: HttpOptions): Promise<Place> {
  const dataDir = temporaryFolder('data')
  return newDatabase ? { dataDir, databaseUrl: await newDatabase() } : { dataDir }
}
