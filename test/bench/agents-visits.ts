import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { quantile } from './figures.ts'
import { conditions } from './fleet.ts'
import type { World } from './world.ts'

/** Requests a second of all people together. */
const perSecond = 5
/** A token is good for a quarter of an hour. */
const renewMs = 600_000

type Visit = { name: string; method: 'GET' | 'POST'; path: string; body?: unknown; status: number }

/** What people do meanwhile, one after the other and around again. */
const visitsOf = (orgId: string, deviceId: string): Visit[] => [
  { name: 'list devices', method: 'GET', path: '/devices?limit=50', status: 200 },
  { name: 'show a device', method: 'GET', path: `/devices/${deviceId}`, status: 200 },
  {
    name: 'preview a filter',
    method: 'POST',
    path: '/filters/preview',
    status: 200,
    body: { conditions, limit: 10 },
  },
  {
    name: 'mint a key',
    method: 'POST',
    path: '/enrollment-keys',
    status: 201,
    body: { orgId, name: 'Reception laptops', maxUsage: 5 },
  },
  { name: 'list the audit log', method: 'GET', path: '/audit-logs?limit=50', status: 200 },
]

export type Waited = { name: string; count: number; p50: number; p99: number; worst: number }

/** Asks steadily, whether it is answered or not, until `end`. */
export function visits(url: string, world: World) {
  const times = new Map<string, number[]>()
  const agent = new Agent({ connections: 16 })
  const ending = new AbortController()
  let token = world.tokens.orgAdmin
  const ask = async ({ method, path, body, status }: Omit<Visit, 'name'>): Promise<unknown> => {
    const reply = await request(`${url}/api/v1${path}`, {
      method,
      dispatcher: agent,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const text = await reply.body.text()
    if (reply.statusCode !== status) throw new Error(`${method} ${path}: ${reply.statusCode} ${text}`)
    return JSON.parse(text)
  }
  const timed = async ({ name, ...visit }: Visit): Promise<void> => {
    const begin = performance.now()
    await ask(visit)
    times.set(name, [...(times.get(name) ?? []), performance.now() - begin])
  }
  const work = async (): Promise<void> => {
    token = await world.renewed()
    const { data } = (await ask({ method: 'GET', path: '/devices?limit=1', status: 200 })) as {
      data: { id: string }[]
    }
    const all = visitsOf(world.orgId, data[0]!.id)
    const asked: Promise<void>[] = []
    const begin = performance.now()
    let renewed = begin
    for (let n = 0; !ending.signal.aborted; n++) {
      await sleep(Math.max(0, begin + (n * 1000) / perSecond - performance.now()))
      if (performance.now() - renewed > renewMs) {
        token = await world.renewed()
        renewed = performance.now()
      }
      asked.push(timed(all[n % all.length]!))
    }
    await Promise.all(asked)
  }
  const working = work()
  // It is awaited at the end; a failure before that is none of nobody.
  working.catch(() => {})
  return {
    async end(): Promise<{ all: Waited; each: Waited[] }> {
      ending.abort()
      await working
      await agent.close()
      const each = [...times].map(([name, taken]) => waited(name, taken))
      return { all: waited('all', [...times.values()].flat()), each }
    },
  }
}

function waited(name: string, times: readonly number[]): Waited {
  const sorted = Float64Array.from(times).sort()
  const [p50, p99] = [quantile(sorted, 0.5), quantile(sorted, 0.99)]
  return { name, count: sorted.length, p50, p99, worst: sorted.at(-1) ?? Number.NaN }
}
