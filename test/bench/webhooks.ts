import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type EventType, eventTypes } from '../../src/core/event-types.ts'
import { bodyOf, headersOf } from '../../src/webhooks/deliveries/rules.ts'
import { fromHere, removeFolder, start, stop, temporaryFolder } from './children.ts'
import { atLeast, median, type Row, rounded, spreadOf } from './figures.ts'
import { cpuOf, longestStall, residentMb, type Server, startService } from './servers.ts'
import type { Volley, Volleyed } from './webhooks-bare.ts'
import {
  buildWebhookWorld,
  certificate,
  happened,
  type Receiver,
  raiserAt,
  startReceiver,
  until,
  type WebhookSpec,
  type WebhookWorld,
} from './webhooks-world.ts'
import type { Place } from './world.ts'

export type WebhooksOptions = {
  quick: boolean
  /** A database of its own for each service; none: SQLite. */
  newDatabase?: () => Promise<string>
}

const type: EventType = 'patch.installed'
const orgs = 2
/** Webhooks of each organization, all of which want every event. */
const perOrg = 25
const atOnce = orgs * perOrg * 4
/** Deliveries that the events which were raised are ahead of those that arrived. */
const ahead = 2000

/** Deliveries to receivers that are quick, to many of which some are slow, and very many. */
export async function webhooks(options: WebhooksOptions, say: (line: string) => void): Promise<Row[]> {
  const folder = certificate()
  const receiver = await startReceiver(folder)
  const setting: Setting = { ...options, folder, receiver, say }
  return [...(await throughput(setting)), ...(await besideSlowOnes(setting))]
}

type Setting = WebhooksOptions & { folder: string; receiver: Receiver; say: (line: string) => void }

async function service(
  { folder, newDatabase }: Setting,
  organizations: number,
  wanted: readonly WebhookSpec[],
) {
  const dataDir = temporaryFolder('webhooks')
  const place: Place = newDatabase ? { dataDir, databaseUrl: await newDatabase() } : { dataDir }
  const world = await buildWebhookWorld(place, organizations, wanted)
  const stallsFile = join(dataDir, 'stalls')
  const server = await startService('svc', place, {
    nodeFlags: ['--import', fromHere('./stalls.ts')],
    env: {
      STALLS_FILE: stallsFile,
      OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
      OUTBOUND_CA_FILE: join(folder, 'cert.pem'),
    },
  })
  const end = async () => {
    await stop(server.child, 30_000)
    removeFolder(dataDir)
  }
  return { world, server, stall: () => longestStall(server, stallsFile), end }
}

async function throughput(setting: Setting): Promise<Row[]> {
  const { receiver, quick, say } = setting
  const rounds = quick ? 3 : 7
  const milliseconds = quick ? 1500 : 3000
  say(`webhooks: deliveries to ${orgs * perOrg} webhooks, and bare requests`)
  const wanted = Array.from(
    { length: perOrg },
    (_, n): WebhookSpec => ({ url: `${receiver.url}/${n}`, events: [type] }),
  )
  const { world, server, stall, end } = await service(setting, orgs, wanted)
  const bare = start([fromHere('./webhooks-bare.ts'), receiver.url, join(setting.folder, 'cert.pem')], {
    ipc: true,
  })
  const volley = async (): Promise<Round> => {
    const before = cpuOf(bare) ?? Number.NaN
    bare.send({ ...sample(), atOnce, milliseconds } satisfies Volley)
    const [{ requests, seconds }] = (await once(bare, 'message')) as [Volleyed]
    return { rate: requests / seconds, cpu: ((cpuOf(bare) ?? Number.NaN) - before) / requests }
  }
  const feed = feedOf(server, world, receiver)
  await feed.run(milliseconds)
  await volley()
  await stall()
  const own: Round[] = []
  const others: Round[] = []
  const stalls: number[] = []
  for (let round = 0; round < rounds; round++) {
    if (round % 2) others.push(await volley())
    own.push(await feed.run(milliseconds))
    stalls.push(await stall())
    if (round % 2 === 0) others.push(await volley())
  }
  await stop(bare)
  const delays = await receiver.turn(0)
  const ratio = spreadOf(own.map(({ rate }, round) => rate / others[round]!.rate))
  const cheapness = spreadOf(own.map(({ cpu }, round) => others[round]!.cpu / cpu))
  const aim = setting.newDatabase ? 0.25 : 0.3
  const row: Row = {
    bench: 'webhooks',
    subject: 'deliveries, from POST /events',
    against: 'bare undici',
    ratio,
    ...atLeast(ratio.median, aim),
    figures: {
      '/s': median(own.map(({ rate }) => rate)),
      'bare /s': median(others.map(({ rate }) => rate)),
      'µs cpu each': median(own.map(({ cpu }) => cpu)),
      'cpu ratio': cheapness.median,
      'stall ms': Math.max(...stalls),
      deliveries: delays.count,
    },
  }
  const rows = [row, await memory(server, feed, setting)]
  await end()
  return rows
}

type Round = { rate: number; cpu: number }
type Feed = ReturnType<typeof feedOf>

/** Keeps a service busy with events, each of which `perOrg` webhooks want. */
function feedOf(server: Server, world: WebhookWorld, receiver: Receiver) {
  const raise = raiserAt(server, world)
  const base = receiver.count()
  let raised = 0
  const arrived = () => receiver.count() - base
  async function whileTrue(goesOn: () => boolean): Promise<void> {
    const keepRaising = async () => {
      while (goesOn()) {
        if (raised * perOrg - arrived() > ahead) await sleep(2)
        else {
          raised += 1
          await raise(type)
        }
      }
    }
    await Promise.all(Array.from({ length: 8 }, keepRaising))
  }
  const drained = () => until(receiver, base + raised * perOrg)
  return {
    arrived,
    /** Until so many more have arrived, and none is on its way. */
    async deliver(more: number) {
      const end = raised * perOrg + more
      await whileTrue(() => raised * perOrg < end)
      await drained()
    },
    /** What arrives in some time, after it has got under way; ends when nothing is on its way any more. */
    async run(milliseconds: number): Promise<Round> {
      let goesOn = true
      const raising = whileTrue(() => goesOn)
      await sleep(milliseconds / 4)
      const begin = { at: performance.now(), count: arrived(), cpu: cpuOf(server.child) ?? Number.NaN }
      await sleep(milliseconds)
      const count = arrived() - begin.count
      const rate = count / ((performance.now() - begin.at) / 1000)
      const cpu = ((cpuOf(server.child) ?? Number.NaN) - begin.cpu) / count
      goesOn = false
      await raising
      await drained()
      return { rate, cpu }
    },
  }
}

/** A request as the deliveries are. */
function sample(): Pick<Volley, 'headers' | 'body'> {
  const id = '01923f7e-0000-7000-8000-000000000000'
  const at = new Date().toISOString()
  const delivery = {
    id,
    webhookId: id,
    orgId: id,
    seq: 4242,
    event: type,
    eventId: id,
    eventAt: at,
    payload: JSON.stringify(happened),
    attempt: 0,
    dueAt: at,
    askedFor: 0,
  }
  const body = bodyOf(delivery)
  return { body, headers: headersOf(delivery, body, { secrets: ['a secret'], headers: [], at }) }
}

async function memory({ child }: Server, feed: Feed, { quick, say }: Setting): Promise<Row> {
  const deliveries = quick ? 100_000 : 1_000_000
  const parts: number[] = []
  for (let tenth = 1; tenth <= 10; tenth++) {
    for (let piece = 0; piece < 6; piece++) {
      await feed.deliver(deliveries / 60)
      parts.push(residentMb(child) ?? Number.NaN)
    }
    say(`webhooks: ${tenth * 10} % of ${deliveries}: ${rounded(parts.at(-1)!)} MB resident`)
  }
  const mean = (of: number[]) => of.reduce((sum, one) => sum + one, 0) / of.length
  const [second, last] = [mean(parts.slice(20, 40)), mean(parts.slice(40))]
  return {
    bench: 'webhooks',
    subject: `memory over ${deliveries.toLocaleString('en-US')} deliveries`,
    figures: {
      'MB resident, each tenth': parts
        .filter((_, n) => n % 6 === 5)
        .map(Math.round)
        .join(' '),
    },
    aim: 'last third ≤ 1.1 × second third',
    met: last <= second * 1.1,
  }
}

const manyOrgs = 100
const slowMs = 20_000
const eventsPerSecond = 30
const kinds = eventTypes.filter((one) => one !== 'webhook.test').slice(0, 10)

/** A steady stream to 10,000 webhooks, without and with one in each organization that is slow and wants everything. */
async function besideSlowOnes(setting: Setting): Promise<Row[]> {
  const { receiver, quick, say } = setting
  say('webhooks: a steady stream to 10,000 webhooks of 100 organizations')
  const wanted = Array.from(
    { length: 100 },
    (_, n): WebhookSpec =>
      n === 0
        ? { url: `${receiver.url}/slow`, events: ['*'] }
        : { url: `${receiver.url}/${n}`, events: [kinds[n % kinds.length]!] },
  )
  const { world, server, stall, end } = await service(setting, manyOrgs, wanted)
  const raise = raiserAt(server, world)
  let raised = 0
  const stream = async (seconds: number) => {
    const raising: Promise<void>[] = []
    const begin = performance.now()
    for (let n = 0; n < seconds * eventsPerSecond; n++) {
      await sleep(Math.max(0, begin + (n * 1000) / eventsPerSecond - performance.now()))
      // A kind for each round over the organizations.
      raising.push(raise(kinds[Math.floor(raised++ / manyOrgs) % kinds.length]!))
    }
    await Promise.all(raising)
  }
  const measured = async (slow: number) => {
    await receiver.turn(slow)
    await stream(quick ? 8 : 15)
    await receiver.turn(slow)
    await stall()
    await stream(quick ? 15 : 40)
    const stalled = await stall()
    await sleep(500)
    return { ...(await receiver.turn(slow)), stall: stalled }
  }
  const quiet = await measured(0)
  const busy = await measured(slowMs)
  // What waits for a slow one is not waited for.
  await end()
  const row = (subject: string, { count, p50, p99, worst, stall }: typeof quiet): Row => ({
    bench: 'webhooks',
    subject,
    figures: { 'p50 ms': p50, 'p99 ms': p99, 'worst ms': worst, 'stall ms': stall, deliveries: count },
    aim: 'p99 ≤ 1 s, stall ≤ 50 ms',
    met: p99 <= 1000 && stall <= 50,
  })
  return [
    row('10,000 webhooks, none slow: POST /events to arrival', quiet),
    row('the same, 100 take 20 s: the other ones', busy),
  ]
}
