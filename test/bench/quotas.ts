import { join } from 'node:path'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import { defaultQuotas } from '../../src/core/quotas.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { fromHere, stop, temporaryFolder } from './children.ts'
import { atMost, type Row } from './figures.ts'
import { type Loader, startLoader } from './loader.ts'
import { longestStall, type Server, startService } from './servers.ts'
import { buildWorld, type Place, type World } from './world.ts'

type Options = {
  /** Records of each kind, of what its quota allows. */
  part: number
  milliseconds: number
  newDatabase?: () => Promise<string>
}

/** The longest that a list may hold up everybody else. */
const patience = 50

/** What a record of each kind is made of, by an endpoint where `buildWorld` makes none. */
const templates: readonly { path: string; body: (world: World) => Record<string, unknown> }[] = [
  {
    path: '/roles',
    body: () => ({ name: 'Role', permissions: [{ resource: 'devices', action: 'read' }] }),
  },
  {
    path: '/filters',
    body: ({ orgId }) => ({
      orgId,
      name: 'Filter',
      conditions: { operator: 'AND', conditions: [{ field: 'status', operator: 'equals', value: 'online' }] },
    }),
  },
  { path: '/device-groups', body: ({ orgId }) => ({ orgId, name: 'Group', type: 'static' }) },
  {
    path: '/scripts',
    body: ({ orgId }) => ({ orgId, name: 'Script', language: 'bash', osTypes: ['linux'], content: 'true' }),
  },
  {
    path: '/webhooks',
    body: ({ orgId }) => ({
      orgId,
      name: 'Webhook',
      url: 'https://127.0.0.1:9/svc',
      events: ['device.enrolled'],
    }),
  },
  { path: '/alerts', body: ({ orgId }) => ({ orgId, severity: 'high', title: 'Disk', message: 'Full' }) },
]

/** The newest row of a table is repeated until there are as many as the quota allows. */
const filled = [
  ['sites', defaultQuotas.SITES],
  ['roles', defaultQuotas.ROLES],
  ['api_keys', defaultQuotas.API_KEYS],
  ['enrollment_keys', defaultQuotas.ENROLLMENT_KEYS],
  ['devices', defaultQuotas.DEVICES],
  ['saved_filters', defaultQuotas.FILTERS],
  ['device_groups', defaultQuotas.DEVICE_GROUPS],
  ['scripts', defaultQuotas.SCRIPTS],
  ['alerts', defaultQuotas.ALERTS],
  ['webhooks', defaultQuotas.WEBHOOKS],
  ['organizations', defaultQuotas.ORGANIZATIONS],
] as const

/** What has to differ from row to row. */
const distinct = new Set(
  ['name', 'hostname', 'title']
    .flatMap((name) => [name, `${name}_key`])
    .concat('slug', 'key_hash', 'email', 'email_key'),
)

/** Every list of an organization and of its partner, with as many records of each kind as the quotas allow. */
export async function quotas(
  { part, milliseconds, newDatabase }: Options,
  say: (line: string) => void,
): Promise<Row[]> {
  const place: Place = {
    dataDir: temporaryFolder('quotas'),
    ...(newDatabase && { databaseUrl: await newDatabase() }),
  }
  const world = await buildWorld(place, 1)
  const first = await startService('svc', place, { env: { OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' } })
  for (const { path, body } of templates) await created(first, world.tokens.orgAdmin, path, body(world))
  await stop(first.child)
  const storage = await openStorage(place)
  for (const [table, quota] of filled) {
    const count = Math.ceil(quota * part)
    say(`quotas: ${count} ${table}`)
    await repeat(storage, table, count)
  }
  say(`quotas: ${Math.ceil(defaultQuotas.MEMBERS * part)} members`)
  await addMembers(storage, Math.ceil(defaultQuotas.MEMBERS * part))
  await storage.close()
  return measured(place, world, milliseconds, say)
}

async function created({ url }: Server, token: string, path: string, body: unknown): Promise<void> {
  const reply = await fetch(`${url}/api/v1${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!reply.ok) throw new Error(`POST ${path}: ${reply.status} ${await reply.text()}`)
}

const batch = 500

async function repeat(storage: Storage, table: string, count: number): Promise<void> {
  const db = storage.read as AnyDb
  const row = (await db
    .selectFrom(table)
    .selectAll()
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .executeTakeFirstOrThrow()) as Record<string, unknown>
  for (let from = 1; from < count; from += batch) {
    const copies = Array.from({ length: Math.min(batch, count - from) }, (_, n) => copyOf(row, from + n))
    await storage.write(async (tx) => {
      for (let n = 0; n < copies.length; n += 50)
        await (tx as AnyDb)
          .insertInto(table)
          .values(copies.slice(n, n + 50))
          .execute()
    })
  }
}

function copyOf(row: Record<string, unknown>, n: number): Record<string, unknown> {
  const values = Object.entries(row).map(([column, value]) => [
    column,
    typeof value === 'string' && distinct.has(column) ? `${value}-${n}` : value,
  ])
  const copy = Object.fromEntries(values) as Record<string, unknown>
  const id = newId()
  if ('agent_id' in row) {
    copy.agent_id = id.replaceAll('-', '').padEnd(64, '0')
    for (const token of ['token_hash', 'watchdog_token_hash']) copy[token] = `${token} ${n}`
  }
  return { ...copy, id }
}

/** More people of the organization of the newest member. */
async function addMembers(storage: Storage, count: number): Promise<void> {
  const db = storage.read as AnyDb
  const newest = (table: string) =>
    db.selectFrom(table).selectAll().orderBy('id', 'desc').executeTakeFirstOrThrow() as Promise<
      Record<string, unknown>
    >
  const [user, membership] = [await newest('users'), await newest('organization_memberships')]
  for (let from = 1; from < count; from += batch) {
    const people = Array.from({ length: Math.min(batch, count - from) }, (_, n) => copyOf(user, from + n))
    await storage.write(async (tx) => {
      for (const person of people) {
        await (tx as AnyDb).insertInto('users').values(person).execute()
        const joined = { ...membership, id: newId(), user_id: person.id }
        await (tx as AnyDb).insertInto('organization_memberships').values(joined).execute()
      }
    })
  }
}

/** What each list is asked for. */
const questions: Readonly<Record<string, string>> = {
  '/search': '?q=1',
  '/permissions/can-i': '?action=read&resource=devices',
}

async function measured(
  place: Place,
  world: World,
  milliseconds: number,
  say: (line: string) => void,
): Promise<Row[]> {
  const stalls = join(place.dataDir, 'stalls')
  const server = await startService('svc', place, {
    nodeFlags: ['--import', fromHere('./stalls.ts')],
    // Nobody reports here: without this all of them would go offline, one batch after the other.
    env: { STALLS_FILE: stalls, OFFLINE_AFTER_SECONDS: '86400' },
  })
  const load = startLoader()
  const rows: Row[] = []
  const callers = { organization: world.tokens.orgAdmin, partner: world.tokens.partnerAdmin }
  for (const { entry } of entriesOf(api)) {
    const { method, path, access } = entry
    if (method !== 'GET' || access.who !== 'user' || path.includes(':') || entry.streams) continue
    for (const [caller, token] of Object.entries(callers)) {
      for (const page of await pagesOf(server, token, path + (questions[path] ?? ''))) {
        const row = await ask({ server, stalls, load, milliseconds }, { caller, token, page })
        say(`quotas: ${row.subject}, ${JSON.stringify(row.figures)}`)
        rows.push(row)
      }
    }
  }
  await stop(server.child)
  return rows
}

/** The first page of a list and the last one, or none that this caller may ask for. */
async function pagesOf({ url }: Server, token: string, path: string): Promise<string[]> {
  const reply = await fetch(`${url}/api/v1${path}`, { headers: { authorization: `Bearer ${token}` } })
  if (reply.status !== 200 || !reply.headers.get('content-type')?.startsWith('application/json')) return []
  const { pagination } = (await reply.json()) as { pagination?: { total?: number; limit?: number } }
  const pages = Math.ceil((pagination?.total ?? 0) / (pagination?.limit ?? 1))
  return pages > 1 ? [path, `${path}${path.includes('?') ? '&' : '?'}page=${pages}`] : [path]
}

type At = { server: Server; stalls: string; load: Loader; milliseconds: number }

async function ask(
  { server, stalls, load, milliseconds }: At,
  { caller, token, page }: { caller: string; token: string; page: string },
): Promise<Row> {
  const request = { method: 'GET', path: `/api/v1${page}`, headers: { authorization: `Bearer ${token}` } }
  const order = { url: server.url, requests: [request], status: 200, connections: 1 }
  const subject = `${caller}: ${page}`
  try {
    await load({ ...order, milliseconds: milliseconds / 3 })
  } catch (error) {
    return {
      bench: 'quotas',
      subject,
      figures: { failed: (error as Error).message },
      aim: 'a reply',
      met: false,
    }
  }
  await longestStall(server, stalls)
  const made = await load({ ...order, milliseconds })
  const stall = await longestStall(server, stalls)
  return {
    bench: 'quotas',
    subject,
    ...atMost(stall, patience, ' ms'),
    figures: { 'p50 ms': made.p50, 'p99 ms': made.p99, 'stall ms': stall, asked: made.requests },
  }
}
