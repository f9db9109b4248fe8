import { setTimeout as sleep } from 'node:timers/promises'
import { agents } from '../../src/agents/contract.ts'
import type { Endpoint } from '../../src/core/endpoint.ts'
import { toJsonSchema } from '../../src/core/openapi.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'
import { devices } from '../../src/devices/contract.ts'
import { service } from '../../src/service/contract.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { orgs, sites } from '../../src/tenancy/contract.ts'
import type { BareRoute } from './bare.ts'
import { stop, temporaryFolder } from './children.ts'
import { atLeast, median, type Row, spreadOf } from './figures.ts'
import type { LoadRequest } from './load.ts'
import { type Loader, startLoader } from './loader.ts'
import { cpuOf, residentMb, type Server, startBare, startService } from './servers.ts'
import { buildWorld, type Place, type World } from './world.ts'

export type HttpOptions = {
  connections: number
  rounds: number
  milliseconds: number
  /** A database of its own for each service; none: SQLite. */
  newDatabase?: () => Promise<string>
}

type Scenario = {
  name: string
  entry: Endpoint
  path: string
  requests: LoadRequest[]
  /** Least ratio to the bare framework. */
  aim?: number
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
      aim: 0.5,
    },
    {
      name: 'list orgs',
      entry: orgs.list,
      path: '/api/v1/orgs/',
      requests: [get('/api/v1/orgs/', as(tokens.partnerAdmin))],
      aim: 0.5,
    },
    {
      name: 'list devices by key',
      entry: devices.list,
      path: '/api/v1/devices',
      requests: apiKeys.map((key) => get('/api/v1/devices?limit=20', { 'x-api-key': key })),
      aim: 0.5,
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
      aim: 0.2,
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
      aim: 0.25,
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
  const subjects = [
    await startService('svc', quiet),
    await startService('svc, LOG_LEVEL=info', chatty, { logLevel: 'info' }),
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
      { server: subjects[0], requests: scenario.requests, storage: storages[0] },
      { server: subjects[1], requests: chattyScenarios[index]!.requests, storage: storages[1] },
      { server: bare[0], requests: scenario.requests },
      { server: bare[1], requests: scenario.requests },
    ]
    rows.push(...(await compete(scenario, contestants, load, options)))
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

/** The same reply as the service's, for the bare servers. */
async function routeOf({ url }: Server, { entry, path, requests }: Scenario): Promise<BareRoute> {
  const { method, headers, body, ...request } = requests[0]!
  const type: Record<string, string> = body ? { 'content-type': 'application/json' } : {}
  const reply = await fetch(url + request.path, {
    method,
    headers: { ...headers, ...type },
    ...(body && { body }),
  })
  if (!reply.ok) throw new Error(`${method} ${request.path}: ${reply.status} ${await reply.text()}`)
  return {
    method: method as 'GET' | 'POST',
    path,
    status: reply.status,
    reply: await reply.json(),
    schema: toJsonSchema(entry.reply, 'output'),
  }
}

type Contestant = { server: Server; requests: LoadRequest[]; storage?: Storage }

type Round = { rate: number; p50: number; p99: number; cpu: number | undefined; loaderBusy: number }

/** All of them by turns, in alternating order; ratios are between neighbours in time. */
async function compete(
  scenario: Scenario,
  contestants: Contestant[],
  load: Loader,
  { rounds, milliseconds, connections }: HttpOptions,
): Promise<Row[]> {
  const { entry } = scenario
  const run = async ({ server, requests, storage }: Contestant, time: number): Promise<Round> => {
    const cpuBefore = cpuOf(server.child)
    const order = { url: server.url, requests, status: entry.status ?? 200, connections, milliseconds: time }
    const made = await load(order)
    const drained = entry.audit && storage ? await drain(storage) : 0
    const cpuAfter = cpuOf(server.child)
    const cpu =
      cpuBefore === undefined || cpuAfter === undefined ? undefined : (cpuAfter - cpuBefore) / made.requests
    const loaderBusy = made.cpu / 1e6 / made.seconds
    return { rate: made.requests / (made.seconds + drained), p50: made.p50, p99: made.p99, cpu, loaderBusy }
  }
  for (const one of contestants) await run(one, Math.min(milliseconds, 1000))
  const results = contestants.map((): Round[] => [])
  for (let round = 0; round < rounds; round++) {
    const order = contestants.map((_, n) => (n + round) % contestants.length)
    for (const n of round % 2 ? order.reverse() : order) {
      results[n]!.push(await run(contestants[n]!, milliseconds))
    }
  }
  const base = results[2]!
  return contestants.map(({ server }, n): Row => {
    const own = results[n]!
    const ratio = spreadOf(own.map(({ rate }, round) => rate / base[round]!.rate))
    const cpu = own.flatMap((it) => it.cpu ?? [])
    const cheapness = own.flatMap((it, round) => (it.cpu ? (base[round]!.cpu ?? Number.NaN) / it.cpu : []))
    return {
      bench: 'http',
      subject: `${scenario.name}: ${server.name}`,
      against: base === own ? '' : 'bare Fastify',
      ratio,
      ...(n < 2 && scenario.aim !== undefined && atLeast(ratio.median, scenario.aim)),
      figures: {
        'req/s': median(own.map((it) => it.rate)),
        'p50 ms': median(own.map((it) => it.p50)),
        'p99 ms': median(own.map((it) => it.p99)),
        ...(cpu.length > 0 && { 'µs cpu/req': median(cpu), 'cpu ratio': median(cheapness) }),
        'load busy': median(own.map((it) => it.loaderBusy)),
      },
    }
  })
}

/** Waits until everything recorded is sealed; the seconds that took. */
async function drain(storage: Storage): Promise<number> {
  const begin = performance.now()
  for (;;) {
    const pending = await storage.read.selectFrom('outbox').select('id').limit(1).execute()
    const seconds = (performance.now() - begin) / 1000
    if (pending.length === 0) return seconds
    if (seconds > 60) throw new Error('The outbox does not empty')
    await sleep(5)
  }
}
