import { join } from 'node:path'
import { systemScope } from '../../src/core/scope.ts'
import { listDevices } from '../../src/devices/store.ts'
import { deviceMatches } from '../../src/filters/compile.ts'
import type { ConditionGroup } from '../../src/filters/conditions/contract.ts'
import { previewFilter } from '../../src/filters/store.ts'
import { findDevices } from '../../src/search/store.ts'
import type { Db } from '../../src/storage/open.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'
import { SqliteConnection } from '../../src/storage/sqlite/connection.ts'
import { openReader, sqliteFile } from '../../src/storage/sqlite/file.ts'
import { kyselyOver } from '../../src/storage/sqlite/kysely.ts'
import { fromHere, removeFolder, stop, temporaryFolder } from './children.ts'
import { atMost, type Row, spreadOf } from './figures.ts'
import { fleetGroups } from './fleet-groups.ts'
import { buildFleet, type Fleet } from './fleet-world.ts'
import type { LoadRequest } from './load.ts'
import { type Loader, startLoader } from './loader.ts'
import { plansOf } from './plans.ts'
import { longestStall, residentMb, type Server, startService } from './servers.ts'
import type { Place } from './world.ts'

export type FleetOptions = {
  /** How many devices, one after the other. */
  sizes: readonly number[]
  milliseconds: number
  /** Also says how the database goes about it. */
  plans: boolean
  newDatabase?: () => Promise<string>
}

/** A filter of five conditions in two levels, as people write them. */
export const conditions: ConditionGroup = {
  operator: 'OR',
  conditions: [
    {
      operator: 'AND',
      conditions: [
        { field: 'status', operator: 'equals', value: 'online' },
        { field: 'hardware.cpuCores', operator: 'greaterThanOrEquals', value: 16 },
        { field: 'tags', operator: 'hasAny', value: ['prod', 'vip'] },
      ],
    },
    {
      operator: 'AND',
      conditions: [
        { field: 'metrics.diskPercent', operator: 'greaterThan', value: 90 },
        { field: 'hostname', operator: 'contains', value: 'sql' },
      ],
    },
  ],
}

/** What a pattern costs beside another: none may be dear. */
const patterns = ['(a+)+$', '^paris-(desk|laptop)-0+1', '(x+x+)+y', '[a-z]+-[0-9]{6}$']

/** The main questions on a fleet, of which the plan is shown. */
const questionsOf = (db: Db): Record<string, () => Promise<unknown>> => ({
  preview: () => previewFilter(db, systemScope, conditions, { limit: 10, now: new Date().toISOString() }),
  'search for 004242': () => findDevices(db, systemScope, '004242', 5),
  'search for desk': () => findDevices(db, systemScope, 'desk', 5),
  'devices by cursor': () =>
    listDevices(db, systemScope, {
      page: 1,
      limit: 50,
      cursor: Buffer.from(JSON.stringify(['oslo', ''])).toString('base64url'),
    }),
})

type Scenario = { name: string; request: LoadRequest; aim?: number }

const patience = 50

/** The question that looks at every row. */
const everyDevice = 'preview, system'

function scenariosOf({ tokens }: Fleet, cursor: string): Scenario[] {
  const get = (path: string, token: string): LoadRequest => ({
    method: 'GET',
    path: `/api/v1${path}`,
    headers: { authorization: `Bearer ${token}` },
  })
  const preview = (token: string, tree: unknown): LoadRequest => ({
    method: 'POST',
    path: '/api/v1/filters/preview',
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ conditions: tree, limit: 10 }),
  })
  const matching = (value: string) => ({
    operator: 'AND',
    conditions: [{ field: 'hostname', operator: 'matches', value }],
  })
  const search = (q: string) => `/search?q=${encodeURIComponent(q)}`
  return [
    { name: everyDevice, request: preview(tokens.system, conditions), aim: patience },
    { name: 'preview, partner of a tenth', request: preview(tokens.partner, conditions), aim: patience },
    { name: 'preview, one organization', request: preview(tokens.organization, conditions), aim: patience },
    { name: 'search, one device', request: get(search('004242'), tokens.system), aim: patience },
    { name: 'search, a quarter of them', request: get(search('desk'), tokens.system), aim: patience },
    { name: 'search, none', request: get(search('no such thing'), tokens.system), aim: patience },
    { name: 'search, two letters', request: get(search('qq'), tokens.system), aim: patience },
    { name: 'search, one organization', request: get(search('desk'), tokens.organization), aim: patience },
    { name: 'devices, page 1', request: get('/devices', tokens.system), aim: patience },
    {
      name: 'devices, page 1,000 by cursor',
      request: get(`/devices?cursor=${encodeURIComponent(cursor)}`, tokens.system),
      aim: patience,
    },
    ...patterns.map((pattern) => ({
      name: `matches ${pattern}, partner of a tenth`,
      request: preview(tokens.partner, matching(pattern)),
    })),
  ]
}

/** One person at a time asks about a fleet, of growing size. */
export async function fleet(options: FleetOptions, say: (line: string) => void): Promise<Row[]> {
  const load = startLoader()
  const rows: Row[] = []
  let smaller: Map<string, number> | undefined
  for (const devices of options.sizes) {
    const dataDir = temporaryFolder('fleet')
    const place: Place = options.newDatabase
      ? { dataDir, databaseUrl: await options.newDatabase() }
      : { dataDir }
    const begin = performance.now()
    say(`fleet: filling in ${devices.toLocaleString('en-US')} devices`)
    const world = await buildFleet(place, devices, say)
    say(`fleet: filled in ${Math.round((performance.now() - begin) / 1000)} s; asking`)
    const medians = new Map<string, number>()
    rows.push(...(await ask(place, world, load, { ...options, smaller, medians })))
    if (options.plans) process.stderr.write(`${(await plansOf(place, questionsOf)).join('\n')}\n`)
    smaller = medians
    removeFolder(dataDir)
  }
  return rows
}

type Asking = {
  milliseconds: number
  /** Medians at the size before this one. */
  smaller: Map<string, number> | undefined
  medians: Map<string, number>
}

async function ask(place: Place, world: Fleet, load: Loader, asking: Asking): Promise<Row[]> {
  const stalls = join(place.dataDir, 'stalls')
  const server = await startService('svc', place, {
    nodeFlags: ['--import', fromHere('./stalls.ts')],
    // Nobody reports here: without this all of them would go offline, one batch after the other.
    env: { STALLS_FILE: stalls, OFFLINE_AFTER_SECONDS: '86400' },
  })
  const size = world.devices.toLocaleString('en-US')
  const rows: Row[] = []
  const cursor = await thousandthPage(server, world.tokens.system)
  const memory: number[] = []
  for (const { name, request, aim } of scenariosOf(world, cursor)) {
    const order = { url: server.url, requests: [request], status: 200, connections: 1 }
    await load({ ...order, milliseconds: asking.milliseconds / 3 })
    await longestStall(server, stalls)
    const made = await load({ ...order, milliseconds: asking.milliseconds })
    const stall = await longestStall(server, stalls)
    memory.push(residentMb(server.child) ?? Number.NaN)
    asking.medians.set(name, made.p50)
    const before = asking.smaller?.get(name)
    const bare = name === everyDevice && !place.databaseUrl ? await bareCounts(place) : undefined
    const growth: Row['figures'] = before === undefined ? {} : { 'times the smaller': made.p50 / before }
    rows.push({
      bench: 'fleet',
      subject: `${size}: ${name}`,
      ...(bare && { against: 'bare SQLite', ratio: spreadOf(bare.map((ms) => ms / made.p50)) }),
      ...(aim !== undefined && atMost(Math.max(made.p99, stall), aim, ' ms')),
      figures: { 'p50 ms': made.p50, 'p99 ms': made.p99, 'stall ms': stall, ...growth, asked: made.requests },
    })
  }
  rows.push(...(await fleetGroups(server, world, stalls)))
  memory.push(residentMb(server.child) ?? Number.NaN)
  rows.push({
    bench: 'fleet',
    subject: `${size}: memory`,
    figures: { 'MB first': memory[0]!, 'MB last': memory.at(-1)! },
  })
  await stop(server.child)
  return rows
}

/** Milliseconds in which SQLite alone, in one thread, counts what the filter finds; nothing is shown of it. */
async function bareCounts({ dataDir }: Place): Promise<number[]> {
  const database = openReader(sqliteFile(dataDir))
  const db = kyselyOver(new SqliteConnection(database))
  const now = new Date().toISOString()
  const found = db.selectFrom('devices').where(deviceMatches(conditions, { now }))
  await countRowsOf(found)
  const times: number[] = []
  for (let round = 0; round < 15; round++) {
    const begin = performance.now()
    await countRowsOf(found)
    times.push(performance.now() - begin)
  }
  database.close()
  return times
}

/** Where page 1,000 begins, or the last one. */
async function thousandthPage({ url }: Server, token: string): Promise<string> {
  let cursor = ''
  for (let page = 1; page < 1000; page++) {
    const query = cursor === '' ? '' : `?cursor=${encodeURIComponent(cursor)}`
    const reply = await fetch(`${url}/api/v1/devices${query}`, {
      headers: { authorization: `Bearer ${token}` },
    })
    if (!reply.ok) throw new Error(`GET /devices: ${reply.status} ${await reply.text()}`)
    const { pagination } = (await reply.json()) as { pagination: { nextCursor: string | null } }
    if (pagination.nextCursor === null) break
    cursor = pagination.nextCursor
  }
  return cursor
}
