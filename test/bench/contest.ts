import { setTimeout as sleep } from 'node:timers/promises'
import type { Endpoint } from '../../src/core/endpoint.ts'
import { toJsonSchema } from '../../src/core/openapi.ts'
import type { Storage } from '../../src/storage/open.ts'
import type { BareRoute } from './bare-server.ts'
import { atLeast, median, type Row, spreadOf } from './figures.ts'
import type { LoadRequest } from './load.ts'
import type { Loader } from './loader.ts'
import { cpuOf, type Server } from './servers.ts'

export type Pace = { connections: number; rounds: number; milliseconds: number }

export type Scenario = {
  name: string
  entry: Endpoint
  path: string
  requests: LoadRequest[]
  /** Least ratio to the bare framework. */
  aim?: number
}

/** The same reply as the service's, for the bare servers. */
export async function routeOf({ url }: Server, { entry, path, requests }: Scenario): Promise<BareRoute> {
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

export type Contestant = {
  server: Server
  requests: LoadRequest[]
  /** `subject` has to reach the aim, `base` is what everyone's ratio is to. */
  as: 'subject' | 'base' | 'other'
  /** Where what a request leaves to do is waited for. */
  storage?: Storage
}

type Round = { rate: number; p50: number; p99: number; cpu: number | undefined; loaderBusy: number }

/** All of them by turns, in alternating order; ratios are between neighbours in time. */
export async function compete(
  bench: string,
  scenario: Scenario,
  contestants: Contestant[],
  load: Loader,
  { rounds, milliseconds, connections }: Pace,
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
  const base = results[contestants.findIndex((one) => one.as === 'base')]!
  return contestants.map(({ server, as }, n): Row => {
    const own = results[n]!
    const ratio = spreadOf(own.map(({ rate }, round) => rate / base[round]!.rate))
    const cpu = own.flatMap((it) => it.cpu ?? [])
    const cheapness = own.flatMap((it, round) => (it.cpu ? (base[round]!.cpu ?? Number.NaN) / it.cpu : []))
    return {
      bench,
      subject: `${scenario.name}: ${server.name}`,
      against: base === own ? '' : 'bare Fastify',
      ratio,
      ...(as === 'subject' && scenario.aim !== undefined && atLeast(ratio.median, scenario.aim)),
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
