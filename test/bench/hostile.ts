import { once } from 'node:events'
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { openStorage } from '../../src/storage/open.ts'
import { scenarioOf } from './agents.ts'
import { firstLine, fromHere, start, stop, temporaryFolder } from './children.ts'
import { atMost, quantile, type Row } from './figures.ts'
import { residentMb, type Server, startService } from './servers.ts'
import { addAdmins, addNeighbors, buildWorld, type Place, type World } from './world.ts'

export type HostileOptions = {
  seconds: number
  /** A database of its own for each service; none: SQLite. */
  newDatabase?: () => Promise<string>
}

const perSecond = 20
const neighborMachines = 100
/** Memory: of the second half of the attack; in the first, caches and heaps reach their size. */
const patience = { p99: 500, growthMb: 100 }

/** Heartbeats of a machine that does no harm, next to all that hostile callers can think of, with the limits there are. */
export async function hostile(options: HostileOptions, say: (line: string) => void): Promise<Row[]> {
  const dataDir = temporaryFolder('hostile')
  const place: Place = options.newDatabase
    ? { dataDir, databaseUrl: await options.newDatabase() }
    : { dataDir }
  say('hostile: filling in')
  const world = await buildWorld(place, 5000)
  const { admins, neighbors } = await addTenants(place, world)
  const env = { TRUST_PROXY_HEADERS: 'true', OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' }
  const server = await startService('svc', place, { limits: true, env })
  const victims = { ...world, agents: neighbors }
  await heartbeats(server, victims, 5)
  const before = residentMb(server.child) ?? Number.NaN
  say(`hostile: attacking for ${options.seconds} s`)
  const task = { url: server.url, admins, orgId: world.orgId, agents: world.agents.slice(0, 60) }
  const attackers = start([fromHere('./hostile-child.ts'), JSON.stringify(task)])
  await firstLine(attackers, () => 'begun')
  const maxMb = () => residentMb(server.child, 'VmHWM') ?? Number.NaN
  const half = sleep(options.seconds * 500).then(maxMb)
  const times = await heartbeats(server, victims, options.seconds)
  const [maxInHalf, max] = [await half, maxMb()]
  const counts = await ended(attackers)
  say('hostile: afterwards')
  const after = await heartbeats(server, victims, 5)
  await stop(server.child, 20_000)
  const row = (subject: string, more: Omit<Row, 'bench' | 'subject'>): Row => ({
    bench: 'hostile',
    subject,
    ...more,
  })
  const p99 = quantile(times.milliseconds, 0.99)
  return [
    row('heartbeats of another tenant', {
      figures: {
        'p50 ms': quantile(times.milliseconds, 0.5),
        'p99 ms': p99,
        'worst ms': times.milliseconds.at(-1) ?? Number.NaN,
        refused: times.failures,
        'p99 ms afterwards': quantile(after.milliseconds, 0.99),
      },
      ...atMost(p99, patience.p99, ' ms'),
    }),
    row('heartbeats answered', {
      figures: { answered: times.milliseconds.length, refused: times.failures, reasons: times.reasons },
      ...atMost(times.failures, 0),
    }),
    row('memory', {
      figures: { 'MB before': before, 'MB at most in the first half': maxInHalf, 'MB at most': max },
      ...atMost(max - maxInHalf, patience.growthMb, ' MB more'),
    }),
    ...(options.newDatabase
      ? []
      : [row('disk', { figures: { MB: statSync(join(dataDir, 'svc.sqlite')).size / 1e6 } })]),
    ...Object.entries(counts).map(([name, answers]) => row(name, { figures: answers })),
  ]
}

/** Another tenant, whose heartbeats are measured, and people of the hostile one. */
async function addTenants(place: Place, { orgId }: World) {
  const storage = await openStorage(place)
  const now = new Date().toISOString()
  try {
    return await storage.write(async (tx) => ({
      admins: await addAdmins(tx, 40, orgId, now),
      neighbors: await addNeighbors(tx, neighborMachines, now),
    }))
  } finally {
    await storage.close()
  }
}

type Counts = Record<string, Record<string, number>>

async function ended(child: ReturnType<typeof start>): Promise<Counts> {
  const lines = createInterface({ input: child.stdout! })
  const line = once(lines, 'line') as Promise<[string]>
  child.kill('SIGTERM')
  const [text] = await Promise.race([line, sleep(10_000).then((): [string] => ['{}'])])
  return JSON.parse(text) as Counts
}

/** Sent steadily, whether they are answered or not; of those that are, the milliseconds in their order. */
async function heartbeats(server: Server, world: World, seconds: number) {
  const dispatcher = new Agent({ connections: 16 })
  const { requests } = scenarioOf(world, 'heartbeat')
  const milliseconds: number[] = []
  const reasons = new Map<string, number>()
  const one = async (n: number): Promise<void> => {
    const machine = n % requests.length
    const { path, headers, body } = requests[machine]!
    // Each at an address of its own: together they would exceed the rate limit of one.
    const address = `198.51.100.${machine}`
    const begun = performance.now()
    const status = await request(server.url + path, {
      method: 'POST',
      dispatcher,
      body: body ?? '',
      headers: { ...headers, 'content-type': 'application/json', 'x-forwarded-for': address },
    })
      .then(async (reply) => {
        await reply.body.dump()
        return String(reply.statusCode)
      })
      .catch((error: { code?: string }) => error.code ?? 'failed')
    if (status === '200') milliseconds.push(performance.now() - begun)
    else reasons.set(status, (reasons.get(status) ?? 0) + 1)
  }
  const under: Promise<void>[] = []
  for (let n = 0; n < seconds * perSecond; n++) {
    under.push(one(n))
    await sleep(1000 / perSecond)
  }
  await Promise.all(under)
  await dispatcher.close()
  milliseconds.sort((a, b) => a - b)
  const failures = [...reasons.values()].reduce((sum, count) => sum + count, 0)
  return { milliseconds, failures, reasons: JSON.stringify(Object.fromEntries(reasons)) }
}
